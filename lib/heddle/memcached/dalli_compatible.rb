# frozen_string_literal: true

module Heddle
  class Memcached
    # Replaces a Dalli::Client: has its methods, with the same arguments and results, and its options. Raises Dalli's
    # own errors if Dalli is loaded. Stores values as dalli does, so both can use the same servers at the same time.
    #
    # Differences: {#get_multi} never returns part of the answer when a server fails in the middle: it raises, or
    # returns an empty Hash. +socket_timeout+ bounds a whole operation. Each thread borrows a connection of its own, so
    # threads do not wait for each other (+pool_size+, 16 for each server). {#fetch_with_lock} waits for a value that
    # another caller computes. Fractions of a second in times to live are rounded up. {#delete} refuses +drop_value+.
    # +skip_lru_bump+, tokens for proxies and +socket_failure_delay+ have no effect: retries follow at once. See
    # doc/limits.md.
    #
    # @example
    #   CACHE = Heddle::Memcached::DalliCompatible.new(ENV["MEMCACHE_SERVERS"], expires_in: 300, socket_timeout: 0.25)
    # @example In place of dalli in Rails' own store, which still requires dalli
    #   class CacheStore < ActiveSupport::Cache::MemCacheStore
    #     def self.build_mem_cache(*addresses)
    #       options = addresses.extract_options!
    #       retrieve_pool_options(options) # a pool of its own it has
    #       Heddle::Memcached::DalliCompatible.new(addresses.flatten, options)
    #     end
    #   end
    class DalliCompatible
      require_relative "dalli_errors"
      require_relative "dalli_result"
      require_relative "dalli_tracing"

      # Dalli's options that have another name in {Memcached}.
      OPTIONS = {
        socket_timeout: :timeout, connect_timeout: :connect_timeout, namespace: :namespace,
        namespace_separator: :namespace_separator, digest_class: :digest, serializer: :serializer, compress: :compress,
        compressor: :compressor, compression_min_size: :min_compress_bytes,
        decompressed_max_bytes: :max_decompressed_bytes, value_max_bytes: :max_value_bytes, failover: :failover,
        socket_max_failures: :failures, ssl_context: :tls, username: :username, password: :password,
        keepalive: :keepalive, string_fastpath: :plain_strings, pool_size: :pool
      }.freeze
      # The class of {#get_with_metadata_result}: dalli's own if it has one.
      CacheResult = defined?(::Dalli::CacheResult) ? ::Dalli::CacheResult : Result
      # Dalli's options that have no effect here.
      WITHOUT_EFFECT = %i[threadsafe protocol silence_marshal_warning verify_reply_keys defer_drain sndbuf rcvbuf
        socket_failure_delay error_when_over_max_size].freeze
      private_constant :OPTIONS, :WITHOUT_EFFECT

      # @param servers [String, Array<String>, nil] see {Address}
      # @param options [Hash] dalli's
      # @raise [ArgumentError] for an unknown option
      def initialize(servers = nil, options = {})
        options = options.compact
        known = OPTIONS.keys + WITHOUT_EFFECT + %i[expires_in cache_nils raw down_retry_delay otel_db_statement
          otel_peer_service]
        unknown = options.keys - known
        unless unknown.empty?
          raise ArgumentError, "unknown options #{unknown.join(", ")}: the options are #{known.join(", ")}"
        end

        ours = OPTIONS.filter_map { |theirs, name| [name, options[theirs]] if options.key?(theirs) }.to_h
        ours[:plain_strings] = false unless ours.key?(:plain_strings)
        ours[:retry_after] = ours[:max_retry_after] = options[:down_retry_delay] if options.key?(:down_retry_delay)
        @expires_in = whole(options[:expires_in]) if options[:expires_in]
        @cache_nils = options[:cache_nils]
        @raw = options[:raw]
        @quiet = :"heddle_quiet_#{object_id}"
        @cache = Memcached.new(servers, **ours)
        Tracing.start(self, statement: options[:otel_db_statement], peer: options[:otel_peer_service])
      end

      # @return [Boolean, nil] whether {#fetch} and {#cas} take a stored nil for a value
      attr_reader :cache_nils

      # Whether {#get} returned a miss, with this client's +cache_nils+.
      def not_found?(value)
        cache_nils ? NOT_FOUND.equal?(value) : value.nil?
      end

      # @param options [Hash, nil] +raw+; +cache_nils+: {NOT_FOUND} for a miss
      # @return [Object, nil]
      def get(key, options = nil)
        return asking { @cache.get(key, raw: raw?(options)) } unless options.is_a?(Hash) && options[:cache_nils]

        entry = asking { @cache.get_entry(key, raw: raw?(options)) }
        entry ? entry.value : NOT_FOUND
      end

      # @return [Object, nil]
      def gat(key, ttl = nil, options = nil)
        asking { @cache.gat(key, ttl_or_default(ttl), raw: raw?(options)) }
      end

      # @return [true, nil]
      def touch(key, ttl = nil)
        asking { @cache.touch(key, ttl_or_default(ttl)) } || nil
      end

      # @return [Array(Object, Integer)] the value and its CAS; [nil, 0] for a miss
      def get_cas(key, options = nil)
        pair = asking { @cache.get_cas(key, raw: raw?(options)) } || [nil, 0]
        block_given? ? yield(*pair) : pair
      end

      # @param options [Hash] +return_hit_status+, +return_last_access+, +return_ttl_remaining+: adds these to the
      #   result; +vivify_ttl+, +recache_ttl+: one caller gets the right to compute the (new) value
      # @return [Hash] value, cas, won_recache, stale, lost_recache and miss; with those options hit_before, last_access
      #   (seconds) and ttl_remaining (seconds; -1: for ever)
      def get_with_metadata(key, options = {})
        vivify, recache = options.values_at(:vivify_ttl, :recache_ttl)
        bytes, flags, cas, ttl, idle, hit, state =
          asking { @cache.send(:read, key, true, nil, Expiry.seconds(number(vivify)), number(recache)) }
        found = metadata(bytes, flags, cas, state || 0, options)
        found[:hit_before] = hit if options[:return_hit_status]
        found[:last_access] = idle || 0 if options[:return_last_access]
        found[:ttl_remaining] = ttl || 0 if options[:return_ttl_remaining]
        found
      end

      # @return [CacheResult] see {#get_with_metadata}
      def get_with_metadata_result(key, options = {})
        CacheResult.new(get_with_metadata(key, options))
      end

      # @return [Hash{String => Hash}, nil] value, cas, stale and miss (false) of each key that has a value; nil with a
      #   block, which gets each pair
      def get_multi_with_metadata(*keys, req_options: nil, &block)
        found = many { metadata_of(strings(keys), req_options) }
        block ? found.each(&block) && nil : found
      end

      # @return [Hash{String => CacheResult}] see {#get_multi_with_metadata}
      def get_multi_with_metadata_result(*keys, req_options: nil)
        get_multi_with_metadata(*keys, req_options: req_options).transform_values { |found| CacheResult.new(found) }
      end

      # @return [Hash, nil] nil with a block, which gets each pair
      def get_multi(*keys, req_options: nil, &block)
        return {} if strings(keys).empty?

        found = many { raw?(req_options) ? @cache.get_multi_raw(*strings(keys)) : @cache.get_multi(*strings(keys)) }
        block ? found.each(&block) && nil : found
      end

      # @return [Hash] of [value, CAS]
      def get_multi_cas(*keys, req_options: nil, &block)
        found = many { @cache.get_multi_cas(*strings(keys)) }
        block ? found.each(&block) && nil : found
      end

      # Returns the stored value, or the block's value, which is stored unless another client stored one meanwhile.
      def fetch(key, ttl = nil, options = nil)
        ttl = ttl_or_default(ttl)
        value = get(key, @cache_nils ? {**(options || {}), cache_nils: true} : options)
        missing = not_found?(value)
        return missing ? nil : value unless block_given? && missing

        made = yield
        add(key, made, ttl, options)
        made
      end

      # @see Memcached#fetch
      def fetch_with_lock(key, ttl: nil, lock_ttl: 30, recache_threshold: nil, req_options: nil, &block)
        raise ArgumentError, "fetch_with_lock needs a block" unless block

        raw = raw?(req_options)
        asking(wrap: false) do
          @cache.fetch(key, ttl: ttl_or_default(ttl), lock: lock_ttl, refresh: recache_threshold, raw: raw, &block)
        end
      end

      # @return [Integer, false, nil] the new CAS; false: another client changed the value; nil: the key had no value
      def cas(key, ttl = nil, options = nil)
        value, cas = get_cas(key, options)
        return if cas.zero? || (value.nil? && !@cache_nils)

        set_cas(key, yield(value), cas, ttl, options) || false
      end

      # Like {#cas}, but calls the block, with nil, also if the key has no value.
      def cas!(key, ttl = nil, options = nil)
        value, cas = get_cas(key, options)
        made = yield(value)
        cas.zero? ? add(key, made, ttl, options) : set_cas(key, made, cas, ttl, options) || false
      end

      # @return [Integer] the new CAS
      def set(key, value, ttl = nil, options = nil)
        put(key, value, ttl, "S", nil, options)
      end

      # @return [Integer, false] the new CAS; false: another client changed the value, or the key had none
      def set_cas(key, value, cas, ttl = nil, options = nil)
        stored_or_false(put(key, value, ttl, "S", cas_or_none(cas), options))
      end

      # @return [Integer, false]
      def add(key, value, ttl = nil, options = nil)
        put(key, value, ttl, "E", nil, options)
      end

      # @return [Integer, false]
      def replace(key, value, ttl = nil, options = nil)
        put(key, value, ttl, "R", nil, options)
      end

      # @return [Integer, false]
      def replace_cas(key, value, cas, ttl = nil, options = nil)
        stored_or_false(put(key, value, ttl, "R", cas_or_none(cas), options))
      end

      # @return [nil]
      def set_multi(pairs, ttl = nil, options = nil)
        return quiet { pairs.each { |key, value| set(key, value, ttl, options) } } && nil if raw?(options)

        ttl = ttl_or_default(ttl)
        pairs = pairs.transform_keys(&:to_s)
        many(nil) { @cache.set_multi(pairs, ttl: ttl) }
      rescue ValueOverMaxSize, MarshalError # the others are stored all the same
        storable = pairs.select { |key, value| storable?(key, value) }
        many(nil) { @cache.set_multi(storable, ttl: ttl) } unless storable.size == pairs.size
        raise
      end

      # @return [true, false]
      def append(key, value, _options = nil)
        change(:append, key, value) { @cache.append(key, value) }
      end

      # @return [true, false]
      def prepend(key, value, _options = nil)
        change(:prepend, key, value) { @cache.prepend(key, value) }
      end

      # @param options [Hash, nil] see {#delete_cas}
      # @return [true, false]
      def delete(key, options = nil)
        delete_cas(key, 0, options)
      end

      # @param options [Hash, nil] +invalidate+: marks the item stale instead; +tombstone_ttl+: the seconds until it is
      #   gone
      # @return [true, false]
      def delete_cas(key, cas = 0, options = nil)
        cas = cas_or_none(cas)
        stale_for = stale_for(options)
        return change(:delete, key, cas: cas) { @cache.delete(key, cas: cas) } unless stale_for

        asking { @cache.send(:remove, key, cas, stale_for) } == true
      end

      # @param options [Hash, nil] see {#delete_cas}
      # @return [Integer] how many of the keys existed
      def delete_multi(keys, options = nil)
        return strings(keys).count { |key| delete(key, options) } if stale_for(options)

        many(0) { @cache.delete_multi(strings(keys)) }
      end

      # @return [Integer, nil]
      def incr(key, amount = 1, ttl = nil, default = nil, _options = nil)
        amount = number(amount || 1)
        options = {initial: number(default), ttl: ttl_or_default(ttl)}
        change(:incr, key, amount, **options) { @cache.incr(key, amount, **options) }
      end

      # @return [Integer, nil]
      def decr(key, amount = 1, ttl = nil, default = nil, _options = nil)
        amount = number(amount || 1)
        options = {initial: number(default), ttl: ttl_or_default(ttl)}
        change(:decr, key, amount, **options) { @cache.decr(key, amount, **options) }
      end

      # Sends all changes that this fiber makes in the block together, at its end. The methods return nil, and errors of
      # single changes are dropped.
      def quiet
        return yield if Thread.current[@quiet]

        Thread.current[@quiet] = new_batch
        begin
          value = yield
        ensure
          batch = Thread.current[@quiet]
          Thread.current[@quiet] = nil
          send_batch(batch)
        end
        value
      end
      alias_method :multi, :quiet

      # Has no effect: requests are never deferred.
      #
      # @return [nil]
      def drain_deferred_responses
      end

      # @param delay [Integer] seconds from now
      # @return [Array<true, nil>] one for each server; nil inside of {#quiet}
      def flush(delay = 0)
        batch = Thread.current[@quiet]
        if batch # what came before goes before
          Thread.current[@quiet] = new_batch
          send_batch(batch)
        end
        flushed = translating(unreachable: NetworkError) do
          @cache.send(:ask_all, @cache.send(:flush_request, number(delay)))
        end
        flushed.map { batch ? nil : true }
      end
      alias_method :flush_all, :flush

      # @return [Hash{String => Hash{String => String}, nil}] nil for a server that does not answer
      def stats(type = nil)
        request = %i[items slabs settings].include?(type) ? "stats #{type}\r\n" : "stats\r\n"
        each_server(request) { |lines| lines.to_h { |line| line.split(" ", 2) } }
      end

      # @return [Array<true, nil>] one for each server
      def reset_stats
        each_server("stats reset\r\n") { true }.values
      end

      # @return [Hash{String => String, nil}] nil for a server that does not answer
      def version
        each_server("version\r\n", &:first)
      end

      # @raise [RingError] when no server answers
      def alive!
        answers, failures = asking { @cache.send(:ask_each, "version\r\n") }
        return true if answers.any? { |_, lines| lines }

        raise RingError, "no server answers: #{failures.first.message}"
      end

      # Closes the idle connections; the next operation opens new ones.
      #
      # @return [nil]
      def close
        @cache.disconnect
      end
      alias_method :reset, :close

      # For programs that take clients from a connection_pool: yields this client.
      def with
        yield self
      end

      # @return [String]
      def inspect
        "#<#{self.class} #{@cache.inspect}>"
      end

      private

      def put(key, value, ttl, mode, cas, options)
        ttl = ttl_or_default(ttl)
        if (batch = Thread.current[@quiet])
          return translating do
            bytes, flags = @cache.send(:encoded, value, raw?(options), **encoding(options))
            @cache.send(:check_size, key, bytes)
            batch.put(key, bytes, flags, ttl, mode, cas)
          end
        end

        translating { @cache.send(:put, key, value, ttl, mode, cas, raw?(options), **encoding(options)) }
      end

      def encoding(options) = {compress: options&.dig(:compress), plain: options&.dig(:string_fastpath)}

      def stored_or_false(stored)
        (stored.nil? && !Thread.current[@quiet]) ? false : stored
      end

      def change(name, key, *arguments, **options, &direct)
        batch = Thread.current[@quiet]
        translating { batch ? batch.public_send(name, key, *arguments, **options) : direct.call }
      end

      def new_batch
        Pipeline.new(@cache.instance_variable_get(:@codec), nil)
      end

      def send_batch(batch)
        translating { @cache.send(:perform_all, batch.keys, batch.commands, batch.repeatable?) }
      rescue RingError
        raise
      rescue DalliError # no caller waits for these answers
        nil
      end

      def storable?(key, value)
        @cache.send(:check_size, key, @cache.send(:encoded, value, false).first)
        true
      rescue ValueTooLarge, EncodeError
        false
      end

      # Blocks get the answers of servers; without an answer they are not called.
      def each_server(request)
        answers, failures = asking { @cache.send(:ask_each, request) }
        refusal = failures.find { |failure| failure.is_a?(Memcached::ServerError) || failure.is_a?(ClientError) }
        translating { raise refusal } if refusal
        answers.transform_values { |lines| lines && yield(lines) }
      end

      def metadata(bytes, flags, cas, state, options)
        value = translating { @cache.send(:decoded, bytes, flags, raw?(options)) } if bytes
        {value: value, cas: cas || 0, won_recache: state.anybits?(WON), stale: state.anybits?(STALE),
         lost_recache: state.anybits?(WAITING), miss: bytes.nil?}
      end

      def metadata_of(keys, options)
        batch = new_batch
        keys.each { |key| batch.get(key) }
        replies = @cache.send(:perform_all, batch.keys, batch.commands, true)
        failure = replies.find { |reply| reply.is_a?(Exception) }
        raise failure if failure

        @cache.send(:rearm_all, batch, replies)
        keys.zip(replies).each_with_object({}) do |(key, (_, bytes, flags, cas, *, state)), found|
          found[key] = metadata(bytes, flags, cas, state, options).slice(:value, :cas, :stale, :miss) if bytes
        end
      end

      # nil: the item is deleted.
      def stale_for(options)
        return unless options.is_a?(Hash)
        raise ArgumentError, "drop_value is not supported: delete the key, or set another value" if options[:drop_value]

        seconds = number(options[:tombstone_ttl])
        raise ArgumentError, "tombstone_ttl requires invalidate: true" if seconds && !options[:invalidate]

        options[:invalidate] ? Expiry.seconds(seconds) || true : nil
      end

      # A request that needs an answer cannot be quiet.
      def asking(wrap: true, &block)
        if Thread.current[@quiet]
          raise NotPermittedMultiOpError, "a request that needs an answer is not allowed inside of quiet"
        end

        wrap ? translating(&block) : yield
      end

      def many(none = {}, &block)
        asking(wrap: false) { translating(&block) }
      rescue RingError
        none
      end

      def strings(keys)
        Array(keys).flatten.compact.map(&:to_s)
      end

      def raw?(options)
        value = options.is_a?(Hash) ? options[:raw] : nil
        value.nil? ? !!@raw : !!value
      end

      def ttl_or_default(ttl)
        ttl.is_a?(Integer) ? ttl : number(ttl || @expires_in || 0)
      end

      # Dalli accepts digits as numbers.
      def number(value)
        return value unless value.is_a?(String)

        Integer(value, 10)
      rescue ArgumentError
        raise ArgumentError, "a number was expected: got #{value.inspect}"
      end

      def cas_or_none(cas)
        cas = Numbers.unsigned(:cas, number(cas))
        cas unless cas == 0
      end

      # Rounds +expires_in+ when the client is made, as dalli does.
      def whole(seconds)
        seconds.is_a?(String) ? number(seconds) : seconds.to_i
      rescue NoMethodError, FloatDomainError
        raise ArgumentError, "a number of seconds was expected for expires_in: got #{seconds.inspect}"
      end

      def translating(unreachable: RingError)
        yield
      rescue NoServerAvailable => error
        raise RingError, "No server available: #{error.message}"
      rescue Unreachable => error
        raise unreachable, "#{"No server available: " if unreachable == RingError}#{error.class}: #{error.message}"
      rescue ValueTooLarge => error
        raise ValueOverMaxSize, error.message
      rescue EncodeError => error
        raise MarshalError, error.message
      rescue DecodeError => error
        raise UnmarshalError, error.message
      rescue Memcached::ServerError => error
        raise ServerError, "SERVER_ERROR #{error.message.split(" failed to process the request: ", 2).last}"
      rescue ProtocolError, ClientError, NotANumber, UnsupportedServer, AuthenticationFailed => error
        raise DalliError, error.message
      rescue Failure => error
        raise NetworkError, "#{error.class}: #{error.message}"
      end
    end
  end
end
