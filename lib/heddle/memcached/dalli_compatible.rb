# frozen_string_literal: true

module Heddle
  class Memcached
    # Stands in for a Dalli::Client: its methods, their arguments and what they return, and its options; errors are Dalli's own
    # where Dalli is loaded. What is stored is what dalli stores, so both can use the same servers at the same time.
    #
    # What differs: {#get_multi} never gives a part of the answer because a server failed in the middle, it raises;
    # +socket_timeout+ bounds a whole operation; connections are not shared but lent, so threads do not wait for each other
    # (+pool_size+, 16 for each server); {#fetch_with_lock} waits for a value that is being made.
    #
    # @example
    #   CACHE = Heddle::Memcached::DalliCompatible.new(ENV["MEMCACHE_SERVERS"], expires_in: 300, socket_timeout: 0.25)
    class DalliCompatible
      loaded = defined?(::Dalli::DalliError)
      # What all of its errors are.
      DalliError = loaded ? ::Dalli::DalliError : Class.new(RuntimeError)
      NetworkError = loaded ? ::Dalli::NetworkError : Class.new(DalliError)
      RingError = loaded ? ::Dalli::RingError : Class.new(DalliError)
      MarshalError = loaded ? ::Dalli::MarshalError : Class.new(DalliError)
      UnmarshalError = loaded ? ::Dalli::UnmarshalError : Class.new(DalliError)
      ValueOverMaxSize = loaded ? ::Dalli::ValueOverMaxSize : Class.new(DalliError)
      NotPermittedMultiOpError = loaded ? ::Dalli::NotPermittedMultiOpError : Class.new(DalliError)

      # Dalli's options that mean the same here by another name.
      OPTIONS = {
        socket_timeout: :timeout, connect_timeout: :connect_timeout, namespace: :namespace, namespace_separator: :namespace_separator,
        digest_class: :digest, serializer: :serializer, compress: :compress, compressor: :compressor, compression_min_size: :compress_from,
        decompressed_max_bytes: :decompressed_most, value_max_bytes: :value_max_bytes, failover: :failover,
        socket_max_failures: :failures, ssl_context: :tls, username: :username, password: :password, keepalive: :keepalive,
        string_fastpath: :plain_strings, pool_size: :pool
      }.freeze
      # Options of dalli's that have nothing to say here.
      WITHOUT_EFFECT = %i[threadsafe protocol silence_marshal_warning verify_reply_keys defer_drain sndbuf rcvbuf otel_db_statement
        otel_peer_service error_when_over_max_size].freeze
      private_constant :OPTIONS, :WITHOUT_EFFECT

      # @param servers [String, Array<String>, nil] see {Address}
      # @param options [Hash] dalli's
      # @raise [ArgumentError] for an option that neither has
      def initialize(servers = nil, options = {})
        options = options.compact
        known = OPTIONS.keys + WITHOUT_EFFECT + %i[expires_in cache_nils raw down_retry_delay]
        unknown = options.keys - known
        raise ArgumentError, "unknown options #{unknown.join(", ")}: there are #{known.join(", ")}" unless unknown.empty?

        ours = OPTIONS.filter_map { |theirs, name| [name, options[theirs]] if options.key?(theirs) }.to_h
        ours[:plain_strings] = false unless ours.key?(:plain_strings)
        ours[:retry_after] = ours[:retry_most] = options[:down_retry_delay] if options.key?(:down_retry_delay)
        @expires_in = options[:expires_in]
        @cache_nils = options[:cache_nils]
        @raw = options[:raw]
        @quiet = :"heddle_quiet_#{object_id}"
        @cache = Memcached.new(servers, **ours)
      end

      # @return [Object, nil]
      def get(key, options = nil)
        asking { @cache.get(key, raw: raw?(options)) }
      end

      # @return [Object, nil]
      def gat(key, ttl = nil, _options = nil)
        asking { @cache.gat(key, ttl_or_default(ttl)) }
      end

      # @return [true, nil]
      def touch(key, ttl = nil)
        asking { @cache.touch(key, ttl_or_default(ttl)) } || nil
      end

      # @return [Array(Object, Integer)] the value and its CAS; [nil, 0] for none
      def get_cas(key, _options = nil)
        pair = asking { @cache.get_cas(key) } || [nil, 0]
        block_given? ? yield(*pair) : pair
      end

      # @return [Hash] value, cas, miss, hit_before, last_access and ttl_remaining (-1: for ever)
      def get_with_metadata(key, _options = {})
        entry = asking { @cache.get_entry(key) }
        return {value: nil, cas: 0, miss: true} unless entry

        {value: entry.value, cas: entry.cas, miss: false, hit_before: entry.hit, last_access: entry.idle, ttl_remaining: entry.ttl || -1}
      end

      # @return [Hash] or nothing with a block, which is given each pair
      def get_multi(*keys, req_options: nil, &block)
        found = many { raw?(req_options) ? @cache.get_multi_raw(*strings(keys)) : @cache.get_multi(*strings(keys)) }
        block ? found.each(&block) && nil : found
      end

      # @return [Hash] of [value, CAS]
      def get_multi_cas(*keys, req_options: nil, &block)
        found = many { @cache.get_multi_cas(*strings(keys)) }
        block ? found.each(&block) && nil : found
      end

      # What is stored, or what the block makes, which is stored unless somebody else has done so.
      def fetch(key, ttl = nil, options = nil)
        entry = asking { @cache.get_entry(key) } if @cache_nils
        value = @cache_nils ? entry&.value : get(key, options)
        return value if !block_given? || entry || !value.nil?

        made = yield
        add(key, made, ttl, options)
        made
      end

      # @see Memcached#fetch
      def fetch_with_lock(key, ttl: nil, lock_ttl: 30, recache_threshold: nil, req_options: nil, &block)
        raise ArgumentError, "fetch_with_lock needs a block" unless block

        asking(wrap: false) { @cache.fetch(key, ttl: ttl_or_default(ttl), lock: lock_ttl, refresh: recache_threshold, &block) }
      end

      # @return [Integer, false, nil] its new CAS; false: somebody else changed it; nil: there was none
      def cas(key, ttl = nil, options = nil)
        value, cas = get_cas(key)
        return if cas.zero? || (value.nil? && !@cache_nils)

        set_cas(key, yield(value), cas, ttl, options) || false
      end

      # As {#cas}, but the block is called, with nil, also if there is none.
      def cas!(key, ttl = nil, options = nil)
        value, cas = get_cas(key)
        made = yield(value)
        cas.zero? ? add(key, made, ttl, options) : set_cas(key, made, cas, ttl, options) || false
      end

      # @return [Integer] its CAS
      def set(key, value, ttl = nil, options = nil)
        put(key, value, ttl, "S", nil, options)
      end

      # @return [Integer, false, nil]
      def set_cas(key, value, cas, ttl = nil, options = nil)
        put(key, value, ttl, "S", cas_or_none(cas), options)
      end

      # @return [Integer, false]
      def add(key, value, ttl = nil, options = nil)
        put(key, value, ttl, "E", nil, options)
      end

      # @return [Integer, false]
      def replace(key, value, ttl = nil, options = nil)
        put(key, value, ttl, "R", nil, options)
      end

      # @return [Integer, false, nil]
      def replace_cas(key, value, cas, ttl = nil, options = nil)
        put(key, value, ttl, "R", cas_or_none(cas), options)
      end

      # @return [nil]
      def set_multi(pairs, ttl = nil, options = nil)
        return quiet { pairs.each { |key, value| set(key, value, ttl, options) } } && nil if raw?(options)

        asking { @cache.set_multi(pairs.transform_keys(&:to_s), ttl: ttl_or_default(ttl)) }
      end

      # @return [true, false]
      def append(key, value, _options = nil)
        change(:append, key, value) { @cache.append(key, value) }
      end

      # @return [true, false]
      def prepend(key, value, _options = nil)
        change(:prepend, key, value) { @cache.prepend(key, value) }
      end

      # @return [true, false]
      def delete(key, _options = nil)
        delete_cas(key)
      end

      # @return [true, false]
      def delete_cas(key, cas = 0, _options = nil)
        cas = cas_or_none(cas)
        change(:delete, key, cas: cas) { @cache.delete(key, cas: cas) }
      end

      # @return [Integer] how many there were
      def delete_multi(keys, _options = nil)
        asking { @cache.delete_multi(strings(keys)) }
      end

      # @return [Integer, nil]
      def incr(key, amount = 1, ttl = nil, default = nil, _options = nil)
        options = {initial: default, ttl: ttl_or_default(ttl)}
        change(:incr, key, amount, **options) { @cache.incr(key, amount, **options) }
      end

      # @return [Integer, nil]
      def decr(key, amount = 1, ttl = nil, default = nil, _options = nil)
        options = {initial: default, ttl: ttl_or_default(ttl)}
        change(:decr, key, amount, **options) { @cache.decr(key, amount, **options) }
      end

      # What is changed in the block (by this fiber) is sent together at its end; the methods return nil, and errors of single
      # changes are dropped.
      def quiet
        return yield if Thread.current[@quiet]

        batch = Thread.current[@quiet] = Pipeline.new(@cache.instance_variable_get(:@codec), nil)
        begin
          value = yield
        ensure
          Thread.current[@quiet] = nil
          asking { @cache.send(:perform_all, batch.keys, batch.commands, batch.repeatable?) }
        end
        value
      end
      alias_method :multi, :quiet

      # @return [Array<true>]
      def flush(delay = 0)
        asking { @cache.flush_all(delay) }
        [true]
      end
      alias_method :flush_all, :flush

      # @return [Hash{String => Hash{String => String}}]
      def stats(type = nil)
        asking { @cache.stats(%i[items slabs settings].include?(type) ? type : nil) }
      end

      # @return [nil]
      def reset_stats
        asking { @cache.reset_stats }
      end

      # @return [Hash{String => String}]
      def version
        asking { @cache.version }
      end

      # @raise [RingError] when no server answers
      def alive!
        asking { @cache.version }
        true
      rescue NetworkError => error
        raise RingError, error.message
      end

      # Closes the connections that nobody uses; the next operation makes new ones.
      #
      # @return [nil]
      def close
        @cache.disconnect
      end
      alias_method :reset, :close

      # For programs that take clients from a connection_pool.
      def with
        yield self
      end

      def inspect
        "#<#{self.class} #{@cache.inspect}>"
      end

      private

      def put(key, value, ttl, mode, cas, options)
        ttl = ttl_or_default(ttl)
        if (batch = Thread.current[@quiet])
          return translating { batch.put(key, *@cache.send(:encoded, value, raw?(options), options&.dig(:compress)), ttl, mode, cas) }
        end

        translating { @cache.send(:put, key, value, ttl, mode, cas, raw?(options), options&.dig(:compress)) }
      end

      def change(name, key, *arguments, **options, &direct)
        batch = Thread.current[@quiet]
        translating { batch ? batch.public_send(name, key, *arguments, **options) : direct.call }
      end

      # What needs an answer cannot be quiet.
      def asking(wrap: true, &block)
        raise NotPermittedMultiOpError, "what asks for an answer is not allowed inside of quiet" if Thread.current[@quiet]

        wrap ? translating(&block) : yield
      end

      def many(&block)
        asking(wrap: false) { translating(&block) }
      rescue RingError
        {}
      end

      def strings(keys)
        Array(keys).flatten.compact.map(&:to_s)
      end

      def raw?(options)
        value = options.is_a?(Hash) ? options[:raw] : nil
        value.nil? ? !!@raw : !!value
      end

      def ttl_or_default(ttl)
        ttl || @expires_in || 0
      end

      def cas_or_none(cas)
        cas unless cas.nil? || cas.zero?
      end

      def translating
        yield
      rescue NoServerAvailable => error
        raise RingError, error.message
      rescue ValueTooLarge => error
        raise ValueOverMaxSize, error.message
      rescue EncodeError => error
        raise MarshalError, error.message
      rescue DecodeError => error
        raise UnmarshalError, error.message
      rescue ServerError, ClientError, NotANumber, UnsupportedServer, AuthenticationFailed => error
        raise DalliError, error.message
      rescue Timeout::Error, IOError, SystemCallError, SocketError => error
        raise NetworkError, "#{error.class}: #{error.message}"
      end
    end
  end
end
