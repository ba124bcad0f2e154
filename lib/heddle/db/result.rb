# frozen_string_literal: true

module Heddle
  module DB
    # The result of a statement: rows, or the number of changed rows.
    class Result
      include Enumerable

      # For drivers in Ruby; those in C set the same variables. Rare attributes are not set: an object with few
      # variables needs no extra memory.
      #
      # @param columns [Array<Column>, #to_a, nil] nil for a statement without rows. An object with +to_a+ (an Array of
      #   Column) and +names+ (an Array of String) makes them when they are wanted
      # @param rows [Array<Array>, nil] nil for a statement without rows
      # @param affected_rows [Integer]
      # @param last_insert_id [Integer, nil]
      # @param warnings [Integer]
      # @param following [Result, nil]
      # @api private
      def initialize(columns: nil, rows: nil, affected_rows: 0, last_insert_id: nil, warnings: 0, following: nil)
        columns.is_a?(Array) ? @columns = columns : @description = columns
        @rows = rows
        @affected_rows = affected_rows if affected_rows > 0
        @last_insert_id = last_insert_id if last_insert_id
        @warnings = warnings if warnings > 0
        @following = following if following
      end

      # @return [Array<Array>] empty for a statement without rows
      def rows
        @rows || EMPTY
      end
      alias_method :to_a, :rows

      # @return [Integer] rows that the statement changed
      def affected_rows
        @affected_rows || 0
      end

      # @return [Integer, nil] the first number that the statement generated for a column that counts by itself
      attr_reader :last_insert_id

      # @return [Integer] how many warnings the server has
      def warnings
        @warnings || 0
      end

      # @return [Result, nil] a procedure's next result
      attr_reader :following

      # @return [#names, #to_a, nil] the columns, as the database has them
      # @api private
      attr_reader :description

      EMPTY = [].freeze
      private_constant :EMPTY

      # @return [Boolean] whether the statement returns rows, even if there are none
      def rows?
        !@rows.nil?
      end

      # @return [Array<Column>]
      def columns
        @columns ||= @description ? @description.to_a : EMPTY
      end

      # @return [Array<String>] names of the columns
      def fields
        @description ? @description.names : columns.map(&:name)
      end

      # @yieldparam row [Array]
      def each(&block)
        return enum_for(:each) { size } unless block

        rows.each(&block)
        self
      end

      # @param symbols [Boolean] whether the keys are Symbols
      # @return [Array<Hash{String, Symbol => Object}>]
      def hashes(symbols: false)
        names = symbols ? fields.map(&:to_sym) : fields
        rows.map { |row| names.zip(row).to_h }
      end

      # One Hash of all rows. Without arguments, of rows with two columns, or of the pairs that the block returns, as
      # Enumerable#to_h. Racket's db has the same as rows->dict.
      #
      # @param key [String, Symbol, Integer, Array] the column of the keys, by its name or its number from 0; several
      #   columns make Arrays
      # @param value [String, Symbol, Integer, Array] the column of the values, or several
      # @param list [Boolean] whether each value is an Array of the values of all rows with this key. Values that are
      #   NULL are left out then: a left join has them for a key without rows
      # @param nulls [Boolean] whether NULL is kept in these Arrays
      # @return [Hash]
      # @raise [UnexpectedRows] when rows with the same key have different values, unless +list+
      # @raise [ArgumentError] for a column that does not exist
      # @example
      #   db.query("select id, name from items").to_h                                # {7 => "lamp"}
      #   db.query("select * from items").to_h(key: "id", value: %w[name price])     # {7 => ["lamp", 9]}
      #   db.query("select * from items").to_h(key: :price, value: :name, list: true) # {9 => ["lamp", "vase"]}
      def to_h(key: nil, value: nil, list: false, nulls: false, &block)
        return super(&block) if key.nil? && value.nil?
        raise ArgumentError, "to_h needs both key: and value:, or neither" if key.nil? || value.nil?

        found = Fields.new(fields)
        key_of = found.reader(key)
        value_of = found.reader(value)
        return lists(key_of, value_of, nulls) if list

        rows.each_with_object({}) do |row, all|
          name = key_of.call(row)
          content = value_of.call(row)
          if all.fetch(name, content) != content
            raise UnexpectedRows, "rows with the same key #{name.inspect} have different values: " \
              "to_h(…, list: true) collects them"
          end
          all[name] = content
        end
      end

      # Groups the rows by the values of columns, in the order of each group's first row. Each group is a row of these
      # values and, last, the Array of its rows, which have the other columns only. Racket's db has the same as
      # group-rows.
      #
      # @param levels [Array<String, Symbol, Integer, Array>] a column, by its name or its number from 0, or an Array of
      #   columns; each further one groups the rows inside the groups of the one before
      # @param nulls [Boolean] whether rows whose other columns are all NULL are kept: a left join has them for a group
      #   without rows
      # @return [Array<Array>]
      # @raise [ArgumentError] for a column that does not exist
      # @example
      #   db.query("select customer, item, price from orders").group("customer")
      #   # [["Ann", [["lamp", 9], ["vase", 5]]], ["Bob", [["lamp", 9]]]]
      def group(*levels, nulls: false)
        raise ArgumentError, "group needs a column: result.group(\"name\")" if levels.empty?

        found = Fields.new(fields)
        levels = levels.map { |level| found.indexes(level) }
        others = (0...fields.size).to_a - levels.flatten
        grouped(rows, levels, others, nulls)
      end

      # @param casts [Hash{String, Symbol, Integer => #call, Symbol}] what converts a column's values; the column is
      #   given by its name or its number from 0, the conversion is a Proc or a method of the value. NULL stays nil
      # @return [Result] the same with these values
      # @raise [ArgumentError] for a column that does not exist, or something else than a Proc or a Symbol
      # @example
      #   db.query("select name, data from items").cast("name" => :to_sym, "data" => JSON.method(:parse))
      def cast(casts)
        found = Fields.new(fields)
        casts = casts.map { |field, cast| [found.index(field), caster(field, cast)] }
        changed = rows.map do |row|
          row.dup.tap do |copy|
            casts.each { |index, cast| copy[index] = cast.call(copy[index]) unless copy[index].nil? }
          end
        end
        dup.tap { |copy| copy.instance_variable_set(:@rows, changed) if rows? }
      end

      # @return [Integer] number of rows
      def size
        rows.size
      end
      alias_method :length, :size

      # @return [Boolean]
      def empty?
        rows.empty?
      end

      # @return [Array] a row
      def [](index)
        rows[index]
      end

      # For Marshal: caches store results, and processes exchange them.
      #
      # @api private
      def marshal_dump
        [columns.map(&:to_h), @rows, affected_rows, last_insert_id, @warnings, following]
      end

      # @api private
      def marshal_load(parts)
        columns, @rows, @affected_rows, @last_insert_id, @warnings, @following = parts
        @columns = columns.map { |column| Column.new(**column) }.freeze
      end

      # @return [String]
      def inspect
        rows? ? "#<#{self.class} #{fields.join(", ")}: #{size} rows>" : "#<#{self.class} #{affected_rows} affected>"
      end

      private

      def lists(key_of, value_of, nulls)
        rows.each_with_object({}) do |row, all|
          list = (all[key_of.call(row)] ||= [])
          content = value_of.call(row)
          list << content if nulls || !Array(content).compact.empty?
        end
      end

      def grouped(rows, levels, others, nulls)
        level, *further = levels
        rows.group_by { |row| row.values_at(*level) }.map do |values, members|
          next [*values, grouped(members, further, others, nulls)] unless further.empty?

          members = members.map { |row| row.values_at(*others) }
          members.reject! { |row| row.all?(&:nil?) } unless nulls
          [*values, members]
        end
      end

      def caster(field, cast)
        return cast if cast.respond_to?(:call)
        return cast.to_proc if cast.is_a?(Symbol)

        raise ArgumentError, "the cast of #{field.inspect} must be a Proc or the name of a method, not #{cast.inspect}"
      end
    end
  end
end
