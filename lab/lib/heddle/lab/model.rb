# frozen_string_literal: true

module Heddle
  module Lab
    # One way of doing a bench's work, as the user names it: `kind`, `kind:argument`, `kind@backend`, or
    # `kind:argument@backend`; with modes of its process at the end, such as `+yjit` and `+insight`.
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

      # The environment that switches a mode on, and nothing else: those of every library, and Heddle's own.
      RUBY_MODES = {"yjit" => {"RUBY_YJIT_ENABLE" => "1"}}.freeze
      OWN_MODES = {"insight" => {"HEDDLE_INSIGHT" => "1"}, "watched" => {"HEDDLE_WATCH_STALLS" => "0.05"}}.freeze
      MODES = {**RUBY_MODES, **OWN_MODES}.freeze
      private_constant :RUBY_MODES, :OWN_MODES, :MODES

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
        match = /\A(?<kind>\w[\w.-]*)(?::(?<argument>\d+))?(?:@(?<backend>\w+))?(?<modes>(?:\+\w+)*)\z/.match(name)
        rule = match && kinds[match[:kind]]
        unless rule
          raise UsageError, "unknown model #{name.inspect}; choose from #{kinds.keys.join(", ")}"
        end
        argument = match[:argument]&.to_i
        check_argument(name, match[:kind], argument, rule)
        check_backend(name, match[:kind], match[:backend])
        modes = match[:modes].split("+").drop(1).uniq
        check_modes(name, match[:kind], modes)
        new(match[:kind], argument, match[:backend], modes: modes)
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

      def self.check_modes(name, kind, modes)
        known = ((backends(kind)&.first == "HEDDLE_BACKEND") ? MODES : RUBY_MODES).keys
        unknown = (modes - known).first
        return unless unknown

        raise UsageError, "model #{name.inspect}: unknown mode #{unknown.inspect}; #{kind} has #{known.join(", ")}"
      end
      private_class_method :check_argument, :check_backend, :check_modes

      # @api private
      def self.backends(kind) = BACKENDS[kind[/\A[a-z]+/]]

      # @param kind [String]
      # @param argument [Integer, nil]
      # @param backend [String, nil]
      # @param modes [Array<String>] "yjit", "insight", …
      # @param twin [Boolean]
      def initialize(kind, argument = nil, backend = nil, modes: [], twin: false)
        @kind = kind
        @argument = argument
        @backend = backend
        @modes = modes
        @twin = twin
      end

      # @return [Boolean]
      def twin? = @twin

      # @return [Boolean] whether its process runs with YJIT
      def yjit? = @modes.include?("yjit")

      # @return [Model] the same, to be measured against this one
      def twin = Model.new(@kind, @argument, @backend, modes: @modes, twin: true)

      # @return [String] as the user names it; a twin has its original's name
      def name
        [@kind, @argument && ":#{@argument}", @backend && "@#{@backend}", *@modes.map { |mode| "+#{mode}" }].join
      end

      # @return [Hash{String => String}] environment variables of its process
      def environment
        variable, names = Model.backends(@kind) if @backend
        {**MODES.values_at(*@modes).reduce({}, :merge), **(@backend ? {variable => names.fetch(@backend)} : {})}
      end
    end
  end
end
