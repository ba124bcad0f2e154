# frozen_string_literal: true

module Heddle
  module DB
    # Functions, aggregates and collations in Ruby, for the SQL of one connection. Only where the database works in this
    # process ({SQLite}); others raise {Unsupported}. In a {Pool} define them with +init+, on each new connection:
    # <tt>init: ->(db) { db.create_function("slug") { |text| … } }</tt>.
    #
    # They run in the fiber whose statement calls them, and may wait. An exception ends the statement, and the call
    # that ran the statement raises it. They cannot use the connection that calls them ({Busy}).
    #
    # @see Connection
    module Functions
      # Defines a function.
      #
      # @param name [String, Symbol]
      # @param arity [Integer] number of arguments, -1 for any; by default that of the block
      # @param deterministic [Boolean] whether the same arguments always have the same result: the database may then
      #   call it once instead of for each row, and indexes may use it
      # @param direct_only [Boolean] whether views, triggers and the schema may not call it: a file from a stranger
      #   cannot then
      # @yieldparam arguments [Array<Integer, Float, String, nil>] bytes are Strings in binary encoding
      # @yieldreturn what may be bound to a parameter, see {Connection#query}
      # @return [self]
      # @raise [Unsupported] on other databases; [ArgumentError, ServerError]
      # @example
      #   db.create_function("reverse") { |text| text&.reverse }
      def create_function(name, arity: nil, deterministic: false, direct_only: true, &block)
        raise ArgumentError, "create_function needs a block" unless block

        arity ||= block.lambda? ? block.arity : arity_of(block)
        define(:function, name, arity, block, deterministic: deterministic, direct_only: direct_only)
      end

      # Defines an aggregate function. Each group has an object of its own.
      #
      # @param name [String, Symbol]
      # @param group [#new] a class. Its objects have +step+, which is called with the arguments of each row, and
      #   +finish+, which returns the result
      # @param arity [Integer] number of arguments, -1 for any; by default that of +step+
      # @param direct_only [Boolean] see {#create_function}
      # @return [self]
      # @raise [Unsupported] on other databases; [ArgumentError, ServerError]
      # @example
      #   Longest = Class.new do
      #     def step(text) = @longest = [@longest.to_s, text.to_s].max_by(&:size)
      #
      #     def finish = @longest
      #   end
      #   db.create_aggregate("longest", Longest)
      def create_aggregate(name, group, arity: nil, direct_only: true)
        unless group.respond_to?(:new)
          raise ArgumentError, "create_aggregate needs a class whose objects have step and finish"
        end

        arity ||= group.respond_to?(:instance_method) ? group.instance_method(:step).arity : -1
        define(:aggregate, name, arity, group, direct_only: direct_only)
      end

      # Defines an order of texts, for <tt>collate name</tt>.
      #
      # @param name [String, Symbol]
      # @yieldparam one [String]
      # @yieldparam other [String]
      # @yieldreturn [Integer] below 0, 0 or above 0, as <=> does
      # @return [self]
      # @raise [Unsupported] on other databases; [ArgumentError, ServerError]
      # @example
      #   db.create_collation("by_length") { |one, other| one.size <=> other.size }
      def create_collation(name, &block)
        raise ArgumentError, "create_collation needs a block" unless block

        define(:collation, name, 2, block)
      end

      private

      # A block without splatted arguments takes as many as it names.
      def arity_of(block)
        (block.parameters.map(&:first) - %i[opt req]).empty? ? block.parameters.size : -1
      end

      def define(kind, name, arity, callable, **options)
        need_driver(:"create_#{kind}", :define_function)
        name = name.to_s
        unless name.valid_encoding? && name.bytesize.between?(1, 255) && !name.include?("\0")
          raise ArgumentError, "create_#{kind} needs a name of 1 to 255 bytes, without a NUL: got #{name.inspect}"
        end

        exchange do
          checked(@driver.define_function(kind, name, [arity, -1].max, callable, **options), "create_#{kind}")
        end
        self
      end
    end
  end
end
