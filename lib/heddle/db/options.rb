# frozen_string_literal: true

module Heddle
  module DB
    # Checks the options of {DB.connect} and {Pool}, which come from keywords or, as Strings, from a URL. Returns their
    # values, or raises an ArgumentError that names the option and its valid values, but never shows a possible secret.
    #
    # @api private
    module Options
      BOOLEANS = {"true" => true, "1" => true, "yes" => true, "on" => true,
                  "false" => false, "0" => false, "no" => false, "off" => false}.freeze
      SECRETS = %i[password sslpassword tls server_public_key].freeze

      # The checks of the options that every database has.
      COMMON = {timeout: :seconds, connect_timeout: :seconds, statement_cache: :statement_cache,
                statement_cache_size: :count, init: :statements}.freeze

      # The options of {Pool} itself, which are keywords: a connection does not take them.
      POOL = %i[size checkout_timeout idle min max_lifetime multiplex].freeze
      # What other libraries call the size of a pool.
      SIZE = %i[pool pool_size max_connections].freeze
      private_constant :BOOLEANS, :SECRETS, :COMMON, :POOL, :SIZE

      class << self
        # @param options [Hash{Symbol => Object}]
        # @param own [Hash{Symbol => Symbol, #call}] the driver's own options, each with its check: a method of this
        #   module, or an object that is called with the name and the value
        # @return [Hash{Symbol => Object}]
        # @raise [ArgumentError]
        def checked(options, own)
          checks = COMMON.merge(own)
          unknown = options.keys - checks.keys
          refuse_unknown(unknown, checks.keys) unless unknown.empty?

          options.to_h do |name, value|
            check = checks.fetch(name)
            [name, check.is_a?(Symbol) ? public_send(check, name, value) : check.call(name, value)]
          end
        end

        # @param own [Hash{Symbol => Object}] see {.checked}
        # @return [Array<Symbol>] the names of all options
        def names(own) = COMMON.keys | own.keys

        # @return [Float, nil] a span of time
        def seconds(name, value)
          number = value.is_a?(String) ? Float(value, exception: false) : value
          return number if number.nil? && value.nil?
          return number.to_f if number.is_a?(Numeric) && number.real? && number > 0

          wrong(name, "a number of seconds above 0, or nil", value)
        end

        # @return [Integer]
        def count(name, value)
          number = whole(value)
          number&.positive? ? number : wrong(name, "a whole number above 0", value)
        end

        # @return [Boolean]
        def boolean(name, value)
          BOOLEANS.fetch(value.to_s) { value.nil? ? false : wrong(name, "true or false", value) }
        end

        # @return [Integer]
        def port(name, value)
          number = whole(value)
          number&.between?(1, 65_535) ? number : wrong(name, "a number from 1 to 65535", value)
        end

        # @return [String, nil]
        def text(name, value)
          value = value.name if value.is_a?(Symbol)
          return value if value.nil? || (value.is_a?(String) && !value.include?("\0"))

          wrong(name, "a String without a NUL", value)
        end

        # @return [String]
        def host(name, value)
          return value if value.is_a?(String) && !value.empty? && !value.match?(/[ [:cntrl:]]/)

          wrong(name, "a name or an address", value)
        end

        # @return [Boolean, Hash, OpenSSL::SSL::SSLContext]
        def tls(name, value)
          return value if value.is_a?(Hash) || value.is_a?(OpenSSL::SSL::SSLContext)
          return false if value.nil?

          BOOLEANS.fetch(value.to_s) { wrong(name, "true, false, a Hash or an OpenSSL::SSL::SSLContext", value) }
        end

        # @return [:utc, :local]
        def time_zone(name, value)
          one_of(name, value, %i[utc local])
        end

        # @return [Symbol]
        def statement_cache(name, value)
          one_of(name, value, StatementCache::MODES)
        end

        # @return [Array<String, #call>]
        def statements(name, value)
          list = (value.is_a?(String) || value.respond_to?(:call)) ? [value] : value || []
          fine = list.is_a?(Array) && list.all? do |step|
            step.respond_to?(:call) || (step.is_a?(String) && !step.strip.empty?)
          end
          fine ? list : wrong(name, "a statement or a Proc, or an Array of them", value)
        end

        # @param range [Range<Integer>]
        # @return [Integer]
        def within(name, value, range)
          number = whole(value)
          return number if number && range.cover?(number)

          wrong(name, "a whole number from #{range.begin} to #{range.end}", value)
        end

        # @param words [Array<Symbol>]
        # @return [Symbol] one of them
        def one_of(name, value, words)
          found = words.find { |word| word.name == value.to_s }
          found || wrong(name, "one of #{words.map(&:inspect).join(", ")}", value)
        end

        # @param expected [String] the option's valid values
        # @raise [ArgumentError]
        def wrong(name, expected, value)
          shown = SECRETS.include?(name) ? "a value of the class #{value.class}" : value.inspect
          raise ArgumentError, "#{name}: must be #{expected}, not #{shown}", cause: nil
        end

        private

        def refuse_unknown(unknown, known)
          advice = unknown.filter_map { |name| advice_for(name, known) }
          raise ArgumentError, "unknown options: #{unknown.join(", ")}; #{advice.map { |text| "#{text}; " }.join}" \
            "the options are #{known.join(", ")}, and of Heddle::DB::Pool.new also #{POOL.join(", ")}"
        end

        # @return [String, nil]
        def advice_for(name, known)
          return "#{name}: is a keyword of Heddle::DB::Pool.new" if POOL.include?(name)
          return "the size of a pool is size:, a keyword of Heddle::DB::Pool.new" if SIZE.include?(name)
          return unless Object.const_defined?("DidYouMean::SpellChecker")

          found = DidYouMean::SpellChecker.new(dictionary: known + POOL).correct(name).first
          "did you mean #{found}: for #{name}:?" if found
        end

        def whole(value)
          number = value.is_a?(String) ? Integer(value, 10, exception: false) : value
          number if number.is_a?(Integer)
        end
      end
    end
    private_constant :Options
  end
end
