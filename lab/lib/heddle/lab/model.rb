# frozen_string_literal: true

module Heddle
  module Lab
    # One way of doing a bench's work, as the user names it: `kind`, `kind:argument`, `kind@backend`, or
    # `kind:argument@backend`. With `+yjit` at the end of the name, its process runs with YJIT.
    #
    # A twin is the same model measured a second time, against itself: the difference between the two is noise.
    class Model
      # The variable that makes each library use a backend, and the library's names of backends. A kind with a longer
      # name, such as heddle_deadline, belongs to the library with whose name it begins.
      BACKENDS = {
        "heddle" => ["HEDDLE_BACKEND", {"uring" => "uring", "epoll" => "epoll", "poll" => "poll"}],
        "pool" => ["HEDDLE_BACKEND", {"uring" => "uring", "epoll" => "epoll", "poll" => "poll"}],
        "processes" => ["HEDDLE_BACKEND", {"uring" => "uring", "epoll" => "epoll", "poll" => "poll"}],
        "async" => ["IO_EVENT_SELECTOR", {"uring" => "URing", "epoll" => "EPoll", "select" => "Select"}]
      }.freeze
      private_constant :BACKENDS

      # The environment that switches YJIT on, and nothing else.
      YJIT = {"RUBY_YJIT_ENABLE" => "1"}.freeze
      private_constant :YJIT

      # @return [String] without argument and backend
      attr_reader :kind
      # @return [Integer, nil]
      attr_reader :argument
      # @return [String, nil] "uring", "epoll", …
      attr_reader :backend

      # @param name [String]
      # @param kinds [Hash{String => Symbol}] the kinds a bench has; the value says whether an argument is
      #   :required, :optional or :none
      # @return [Model]
      # @raise [UsageError]
      def self.parse(name, kinds)
        match = /\A(?<kind>\w[\w.-]*)(?::(?<argument>\d+))?(?:@(?<backend>\w+))?(?<yjit>\+yjit)?\z/.match(name)
        rule = match && kinds[match[:kind]]
        unless rule
          raise UsageError, "unknown model #{name.inspect}; choose from #{kinds.keys.join(", ")}"
        end
        argument = match[:argument]&.to_i
        check_argument(name, match[:kind], argument, rule)
        check_backend(name, match[:kind], match[:backend])
        new(match[:kind], argument, match[:backend], yjit: !match[:yjit].nil?)
      end

      def self.check_argument(name, kind, argument, rule)
        raise UsageError, "model #{name.inspect} takes no number" if argument && rule == :none
        raise UsageError, "model #{name.inspect} needs a number, as in #{kind}:100" if !argument && rule == :required
        raise UsageError, "model #{name.inspect}: the number must be at least 1" if argument&.zero?
      end

      def self.check_backend(name, kind, backend)
        return unless backend

        _, names = backends(kind)
        return if names&.key?(backend)

        known = names ? "it has #{names.keys.join(", ")}" : "#{kind} has none to choose"
        raise UsageError, "model #{name.inspect}: unknown backend #{backend.inspect}; #{known}"
      end
      private_class_method :check_argument, :check_backend

      # @api private
      def self.backends(kind) = BACKENDS[kind[/\A[a-z]+/]]

      # @param kind [String]
      # @param argument [Integer, nil]
      # @param backend [String, nil]
      # @param yjit [Boolean]
      # @param twin [Boolean]
      def initialize(kind, argument = nil, backend = nil, yjit: false, twin: false)
        @kind = kind
        @argument = argument
        @backend = backend
        @yjit = yjit
        @twin = twin
      end

      # @return [Boolean]
      def twin? = @twin

      # @return [Boolean] whether its process runs with YJIT
      def yjit? = @yjit

      # @return [Model] the same, to be measured against this one
      def twin = Model.new(@kind, @argument, @backend, yjit: @yjit, twin: true)

      # @return [String] as the user names it; a twin has its original's name
      def name = [@kind, @argument && ":#{@argument}", @backend && "@#{@backend}", ("+yjit" if @yjit)].join

      # @return [Hash{String => String}] environment variables of its process
      def environment
        variable, names = Model.backends(@kind) if @backend
        {**(@yjit ? YJIT : {}), **(@backend ? {variable => names.fetch(@backend)} : {})}
      end
    end
  end
end
