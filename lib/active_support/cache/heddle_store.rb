# frozen_string_literal: true

require "active_support"
require "active_support/cache"
require "heddle/memcached"

module ActiveSupport
  module Cache
    # A cache store for Rails that uses Heddle::Memcached:
    #
    #   config.cache_store = :heddle_store, "127.0.0.1:11211", {namespace: "app", timeout: 0.25}
    #
    # ActiveSupport handles the options of its stores; all others go to Heddle::Memcached. +pool+ also takes the values
    # of Rails' own stores: <tt>{size: 5, timeout: 1}</tt> (in older versions +pool_size+ and +pool_timeout+); true or
    # no +pool+ for Heddle's default size; false for a single connection to each server.
    #
    # As in Rails' own store, a read from a server that does not answer is a miss, and a write returns nil. The error is
    # logged, and reported to Rails' error reporter. +write_multi+ sends all entries together; with +unless_exist+, or
    # if an entry is too large, it sends them one by one.
    class HeddleStore < Store
      prepend Strategy::LocalCache

      # The errors of a server that is down.
      FAILURES = [Heddle::Memcached::Failure, Heddle::Error].freeze

      # With <tt>coder: nil</tt> the store serializes entries, as Rails' own does by Dalli.
      module ByMarshal
        def self.dump(entry) = Marshal.dump(entry)

        # @return [Entry, nil] nil: it was stored by others, or is a counter
        def self.load(payload)
          entry = Marshal.load(payload)
          entry if entry.is_a?(Entry)
        rescue ArgumentError, TypeError
          nil
        end
      end
      private_constant :FAILURES, :ByMarshal

      def self.supports_cache_versioning?
        true
      end

      # @param addresses [Array<String>] see Heddle::Memcached
      def initialize(*addresses)
        options = addresses.extract_options!
        theirs = options.slice(*UNIVERSAL_OPTIONS, :serializer, :coder, :error_handler, :max_key_size)
        theirs[:coder] ||= ByMarshal if theirs.key?(:coder)
        super(theirs)
        ours = options.except(*theirs.keys)
        ours = ours.except(:pool, :pool_size, :pool_timeout).merge(pool_options(ours))
        addresses = addresses.flatten
        @data = Heddle::Memcached.new(addresses.empty? ? nil : addresses, serializer: :string, compress: false, **ours)
      end

      # @return [String]
      def inspect
        "#<#{self.class} options=#{options.inspect} mem_cache=#{@data.inspect}>"
      end

      # @return [Integer, nil] +amount+ if the key had no value; nil: the value is not a number, or the server does not
      #   answer
      def increment(name, amount = 1, options = nil)
        count(:increment, :incr, name, amount, amount, options)
      end

      # @return [Integer, nil] 0 if the key had no value, since memcached does not count below 0
      def decrement(name, amount = 1, options = nil)
        count(:decrement, :decr, name, amount, 0, options)
      end

      # Deletes all items on all servers, whatever their namespace.
      def clear(_options = nil)
        failing_to(nil) { @data.flush_all }
      end

      # @return [Hash]
      def stats
        @data.stats
      end

      private

      # Translates Rails' options of a pool to those of Heddle::Memcached.
      def pool_options(options)
        pool = options[:pool]
        asked =
          case pool
          when nil, true then {}
          when false then {size: 1}
          when Hash then pool.compact
          else {size: pool}
          end
        unknown = asked.keys - %i[size timeout]
        raise ArgumentError, "the options of a pool are size and timeout: got #{pool.inspect}" unless unknown.empty?

        size = asked[:size] || options[:pool_size]
        seconds = asked[:timeout] || options[:pool_timeout]
        {pool: size && Integer(size), pool_timeout: seconds && Float(seconds)}.compact
      end

      def count(event, method, name, amount, initial, options)
        options = merged_options(options)
        key = normalize_key(name, options)
        instrument(event, key, amount: amount) do
          failing_to(nil) { @data.public_send(method, key, amount, initial: initial, ttl: options[:expires_in]) }
        end
      end

      def read_entry(key, **options)
        deserialize_entry(read_serialized_entry(key, **options), **options)
      end

      def read_serialized_entry(key, **)
        failing_to(nil) { @data.get(key, raw: true) }
      end

      def write_entry(key, entry, **options)
        write_serialized_entry(key, serialize_entry(entry, **options), **options)
      end

      # @param stored [Boolean, nil] whether the entry was already stored together with others: then only the local
      #   cache is updated
      def write_serialized_entry(key, payload, unless_exist: false, expires_in: nil, race_condition_ttl: nil,
        raw: false, stored: nil, **)
        return stored unless stored.nil?

        ttl = time_to_live(expires_in, race_condition_ttl, raw)
        payload = payload.to_s if raw
        failing_to(nil) do
          unless_exist ? @data.add(key, payload, ttl: ttl, raw: true) : @data.set(key, payload, ttl: ttl, raw: true)
        end
      end

      def write_multi_entries(entries, unless_exist: false, **options)
        return super if unless_exist || entries.empty?

        payloads = entries.transform_values { |entry| serialize_entry(entry, **options) }
        stored = failing_to(false) do
          store_all(payloads, time_to_live(*options.values_at(:expires_in, :race_condition_ttl, :raw)))
        end
        return super if stored.nil?

        payloads.each { |key, payload| write_serialized_entry(key, payload, **options, stored: stored) }
        entries
      end

      # @return [true, nil] nil: an entry is too large
      def store_all(payloads, ttl)
        @data.set_multi(payloads, ttl: ttl, raw: true)
        true
      rescue Heddle::Memcached::ValueTooLarge
        nil
      end

      # An expired entry stays for as long as other callers may still serve it (+race_condition_ttl+).
      def time_to_live(expires_in, race_condition_ttl, raw)
        return expires_in unless race_condition_ttl && expires_in && expires_in > 0 && !raw

        expires_in + 300
      end

      def read_multi_entries(names, **options)
        keys = names.to_h { |name| [normalize_key(name, options), name] }
        found = failing_to({}) { @data.get_multi_raw(keys.keys) }
        found.each_with_object({}) do |(key, payload), entries|
          entry = deserialize_entry(payload, **options)
          next if entry.nil? || entry.expired? || entry.mismatched?(normalize_version(keys[key], options))

          entries[keys[key]] = entry.value
        end
      end

      def delete_entry(key, **)
        failing_to(false) { @data.delete(key) }
      end

      def delete_multi_entries(keys, **)
        failing_to(0) { @data.delete_multi(keys) }
      end

      def serialize_entry(entry, raw: false, **options)
        raw ? entry.value.to_s : super(entry, **options)
      end

      def deserialize_entry(payload, raw: false, **)
        return if payload.nil?

        raw ? Entry.new(payload) : super(payload)
      end

      def failing_to(value)
        yield
      rescue *FAILURES => error
        raise if error.is_a?(ArgumentError) && !error.is_a?(Heddle::Memcached::ValueTooLarge)

        logger&.error("Heddle::Memcached failed (#{error.class}): #{error.message}")
        tell(ActiveSupport.error_reporter, error) if ActiveSupport.respond_to?(:error_reporter)
        value
      end

      def tell(reporter, error)
        return unless reporter

        named = reporter.method(:report).parameters.include?([:key, :source]) # since Rails 7.1
        reporter.report(error, handled: true, severity: :warning,
          **(named ? {source: "heddle_store.active_support"} : {}))
      end
    end
  end
end
