# frozen_string_literal: true

require "heddle"

module Heddle
  # A client of memcached for threads and fibers. Every operation ends within its timeout. The client spreads keys over
  # several servers as dalli does, and each of the two clients can read the other's values.
  #
  # If a retry may help (the server restarted, or has gone and another server takes its keys), the client retries an
  # operation within its timeout. It does not retry an operation that the server may have executed and must not execute
  # twice: add, replace, append, prepend, incr, decr, and any operation with a CAS. An operation that is interrupted
  # closes its connection.
  #
  # Times to live (+ttl+) are seconds, also more than 30 days, or a Time; nil and 0 mean for ever.
  #
  # Marshal reads values unless another serializer is set: anyone who can write to the servers can run code in this
  # program.
  #
  # @example
  #   cache = Heddle::Memcached.new("127.0.0.1:11211", timeout: 0.25)
  #   cache.fetch("front page", ttl: 60) { render }
  class Memcached
    # Seconds for an operation with all its retries, by default.
    TIMEOUT = 1
    # The most connections to each server.
    POOL = 16
    # The most bytes of an item, see +max_value_bytes+.
    MAX_VALUE_BYTES = 1 << 20
    # Bytes that memcached adds to an item's key and value.
    ITEM_OVERHEAD = 63
    # Seconds that #fetch gives the caller that computes a value.
    LOCK = 10
    # Seconds for the clean-up after a block has failed.
    GRACE = 0.5
    # Pauses of callers that wait for another to compute a value, in seconds: the first and the longest.
    PAUSES = [0.005, 0.1].freeze
    # Of ext/heddle/wire/memcached/messages.h.
    WON = 1 << 6
    STALE = 1 << 7
    WAITING = 1 << 8
    # The most other servers that a key may move to.
    DETOURS = 19
    private_constant :MAX_VALUE_BYTES, :ITEM_OVERHEAD, :LOCK, :GRACE, :PAUSES, :WON, :STALE, :WAITING, :DETOURS

    # An item's value with its metadata.
    #
    # @!attribute value
    #   @return [Object] the value
    # @!attribute flags
    #   @return [Integer] the flags that the client stored with the value
    # @!attribute cas
    #   @return [Integer] a number that changes with every change of the item
    # @!attribute ttl
    #   @return [Integer, nil] seconds left to live; nil: for ever
    # @!attribute idle
    #   @return [Integer] seconds since the last read
    # @!attribute hit
    #   @return [Boolean] whether the item was read before
    # @!attribute stale
    #   @return [Boolean] whether {Memcached#delete} marked the item stale
    Entry = Struct.new(:value, :flags, :cas, :ttl, :idle, :hit, :stale, keyword_init: true)

    require_relative "memcached/errors"
    require_relative "memcached/address"
    require_relative "memcached/ring"
    require_relative "memcached/keys"
    require_relative "memcached/expiry"
    require_relative "memcached/numbers"
    require_relative "memcached/codec"
    require_relative "memcached/server"
    require_relative "memcached/pipeline"
    require_relative "memcached/administration"

    include Administration

    # The methods in C: get, get_multi and the building blocks of the others.
    Heddle.send(:define_memcached)

    autoload :DalliCompatible, File.expand_path("memcached/dalli_compatible", __dir__)

    # Opens no connection yet.
    #
    # @param servers [String, Array<String>, nil] see {Address}; nil: the servers in MEMCACHE_SERVERS, or 127.0.0.1
    # @param timeout [Numeric, nil] seconds for an operation, with connects and retries
    # @param connect_timeout [Numeric, nil] seconds for a connect, if less than +timeout+
    # @param ttl [Numeric, nil] the default time to live
    # @param pool [Integer] the most connections to each server; when all are in use, callers wait for the next
    # @param pool_timeout [Numeric, nil] seconds to wait for a connection, if less than +timeout+
    # @param namespace [String, Proc, nil] a prefix of every key, followed by +namespace_separator+
    # @param serializer [:marshal, :json, :string, #dump & #load] Strings in UTF-8 or without an encoding are stored
    #   unchanged, unless +plain_strings+ is false
    # @param compress [Boolean] whether to compress values of +min_compress_bytes+ bytes and more
    # @param compressor [#compress & #decompress, nil] nil: zlib
    # @param max_decompressed_bytes [Integer] the most bytes of a decompressed value; all values of one reply together
    #   may have four times as many
    # @param max_value_bytes [Integer, nil] the servers' limit for items, their option -I: larger items are not sent
    # @param failover [Boolean] whether the keys of a server that is down move to another server
    # @param failures [Integer] failures in a row until a server counts as down
    # @param retry_after [Numeric] seconds until a server that is down is tried again; doubled at each failure up to
    #   +max_retry_after+
    # @param tls [Boolean, Hash, OpenSSL::SSL::SSLContext] see {Stream.connect}; for all servers except UNIX sockets
    # @param username [String, nil] for servers that were started with -Y, with +password+
    # @param keepalive [Boolean] whether the kernel probes now and then if the peer is still there
    # @param digest [#hexdigest, nil] for keys that are too long; nil: MD5
    # @raise [ArgumentError]
    def initialize(servers = nil, timeout: TIMEOUT, connect_timeout: nil, ttl: nil, pool: POOL, pool_timeout: nil,
      namespace: nil, namespace_separator: ":", digest: nil, serializer: :marshal, plain_strings: true, compress: true,
      min_compress_bytes: Codec::MIN_COMPRESS_BYTES, compressor: nil,
      max_decompressed_bytes: Codec::MAX_DECOMPRESSED_BYTES, max_value_bytes: MAX_VALUE_BYTES, failover: true,
      failures: 2, retry_after: 1, max_retry_after: 30, tls: false, username: nil, password: nil, keepalive: false)
      addresses = Address.all(servers)
      @keys = Keys.new(namespace: namespace, separator: namespace_separator, digest: digest)
      @codec =
        Codec.new(serializer: serializer, plain_strings: plain_strings, compressor: compressor, compress: compress,
          min_compress_bytes: min_compress_bytes, max_decompressed_bytes: max_decompressed_bytes)
      @timeout = timeout
      @ttl = Expiry.seconds(ttl) && ttl
      @max_value_bytes = max_value_bytes || Float::INFINITY
      @failover = failover
      @servers = addresses.map do |address|
        Server.new(address, pool: pool, pool_timeout: pool_timeout, connect_timeout: connect_timeout,
          tls: tls, username: username, password: password, keepalive: keepalive, failures: failures,
          retry_after: retry_after, max_retry_after: max_retry_after)
      end
      set_up(@servers, Ring.points(addresses), @codec, timeout, @keys.fixed_prefix)
    end

    # @!group Reading

    # Reads an item with its metadata.
    #
    # @param key [#to_s]
    # @param raw [Boolean] whether to return the stored bytes without deserializing them
    # @return [Entry, nil]
    def get_entry(key, raw: false)
      bytes, flags, cas, ttl, idle, hit, state = look(key, nil)
      return if bytes.nil?

      Entry.new(value: decoded(bytes, flags, raw), flags: flags, cas: cas,
        ttl: (ttl unless ttl == -1), idle: idle, hit: hit, stale: state.anybits?(STALE))
    end

    # @param raw [Boolean] see {#get_entry}
    # @return [Array(Object, Integer), nil] the value and its CAS, for #set and #delete with +cas:+
    def get_cas(key, raw: false)
      entry = get_entry(key, raw: raw)
      entry && [entry.value, entry.cas]
    end

    # Reads an item and sets its time to live.
    #
    # @param raw [Boolean] see {#get_entry}
    # @return [Object, nil]
    def gat(key, ttl, raw: false)
      bytes, flags = look(key, Expiry.seconds(ttl) || 0)
      bytes && decoded(bytes, flags, raw)
    end

    # Sets an item's time to live.
    #
    # @return [Boolean] whether the item existed
    def touch(key, ttl = @ttl)
      touched(key, Expiry.seconds(ttl) || 0)
    end

    # @!group Writing

    # @param value [Object]
    # @param ttl [Numeric, Time, nil] see {Memcached}
    # @param cas [Integer, nil] stores the value only if the item exists and has this CAS
    # @param raw [Boolean] whether the value is a String of bytes that are stored as they are
    # @return [Boolean] true; false when +cas+ did not match
    # @raise [ValueTooLarge, EncodeError]
    def set(key, value, ttl: @ttl, cas: nil, raw: false)
      put(key, value, ttl, "S", cas, raw) ? true : false
    end

    # Stores the value unless the key has one.
    #
    # @return [Boolean] whether the value was stored
    def add(key, value, ttl: @ttl, raw: false)
      put(key, value, ttl, "E", nil, raw) ? true : false
    end

    # Stores the value only if the key has one.
    #
    # @return [Boolean] whether the value was stored
    def replace(key, value, ttl: @ttl, raw: false)
      put(key, value, ttl, "R", nil, raw) ? true : false
    end

    # Appends bytes to the stored value.
    #
    # @return [Boolean] whether the key had a value
    def append(key, bytes)
      store(key, bytes.to_s, 0, nil, "A", nil) ? true : false
    end

    # Prepends bytes to the stored value.
    #
    # @return [Boolean] whether the key had a value
    def prepend(key, bytes)
      store(key, bytes.to_s, 0, nil, "P", nil) ? true : false
    end

    # @param cas [Integer, nil] deletes the item only if it has this CAS
    # @param stale_for [Numeric, nil] seconds: marks the item stale instead of deleting it. Then #fetch lets one caller
    #   compute a new value, and returns the old value to the others meanwhile
    # @return [Boolean] whether the item existed (and had the CAS)
    def delete(key, cas: nil, stale_for: nil)
      remove(key, Numbers.unsigned(:cas, cas), Expiry.seconds(stale_for)) == true
    end

    # Adds to a number, which is stored as digits. The number wraps around at 64 bits.
    #
    # @param by [Integer]
    # @param initial [Integer, nil] the number to store if the key has none
    # @return [Integer, nil] the new number; nil: the key has none
    # @raise [NotANumber]
    def incr(key, by = 1, initial: nil, ttl: @ttl)
      count(key, "I", Numbers.unsigned(:by, by), Numbers.unsigned(:initial, initial), Expiry.seconds(ttl))
    end

    # Subtracts from a number, down to 0.
    #
    # @return [Integer, nil] see {#incr}
    def decr(key, by = 1, initial: nil, ttl: @ttl)
      count(key, "D", Numbers.unsigned(:by, by), Numbers.unsigned(:initial, initial), Expiry.seconds(ttl))
    end

    # Changes a value unless another client changes it meanwhile. The block gets the value and returns the new value.
    #
    # @yieldparam value [Object]
    # @return [Boolean, nil] whether the new value was stored; nil: the key has no value, and the block was not called
    def cas(key, ttl: @ttl)
      value, cas = get_cas(key)
      return if cas.nil?

      set(key, yield(value), ttl: ttl, cas: cas)
    end

    # Returns the stored value, or calls the block and stores its value. When many callers in any number of processes
    # miss the same key at once, only one calls its block. The others wait, or get the old value if there is one.
    #
    # @param ttl [Numeric, Time, nil] see {Memcached}
    # @param refresh [Numeric, nil] seconds: once the item has less time left, one caller computes a new value, while
    #   the others still get the old value
    # @param lock [Numeric] seconds that the others wait for the caller that computes the value; then the next caller
    #   computes it
    # @param raw [Boolean] whether the value is a String of bytes that are stored as they are
    # @return [Object]
    def fetch(key, ttl: @ttl, refresh: nil, lock: LOCK, raw: false)
      return get(key, raw: raw) unless block_given?

      lock_seconds = [Expiry.seconds(lock) || 0, 1].max
      refresh &&= Expiry.seconds(refresh)
      Expiry.seconds(ttl) # what is wrong with it is said before anything is made
      pause, longest = PAUSES
      patience = nil
      entry = read(key, true, nil, lock_seconds, refresh)
      while others_make?(entry)
        patience ||= Clock.now + 2 * lock_seconds
        return yield if Clock.now > patience # a key that others make again and again, and never in time

        sleep(pause)
        pause = [pause * 2, longest].min
        entry = read(key, true, nil, lock_seconds, refresh)
      end
      bytes, flags, cas, *, state = entry
      (bytes && state.nobits?(WON)) ? decoded(bytes, flags, raw) : make(key, bytes, cas, state, ttl, raw) { yield }
    end

    # @!group Many at once

    # Stores all pairs, on all servers at once. Raises the first error at the end, when other pairs may be stored.
    #
    # @param pairs [Hash]
    # @param raw [Boolean] whether the values are Strings of bytes that are stored as they are
    # @return [nil]
    # @raise [ValueTooLarge, EncodeError] before anything is sent
    def set_multi(pairs, ttl: @ttl, raw: false)
      keys = pairs.keys
      values = []
      flags = []
      pairs.each do |key, value|
        bytes, flag = encoded(value, raw)
        check_size(key, bytes)
        values << bytes
        flags << flag
      end
      store_all(keys, values, flags, Expiry.seconds(ttl))
    end

    # @param keys [Array]
    # @return [Integer] how many of the keys existed
    def delete_multi(*keys)
      remove_all(keys.flatten)
    end

    # Collects commands, and sends them to all servers at once when the block ends.
    #
    # @example
    #   cache.pipelined do |batch|
    #     batch.set("a", 1)
    #     batch.incr("b", 1, initial: 0)
    #   end                             #=> [true, 0]
    # @yieldparam batch [Pipeline]
    # @return [Array] the results, in order
    # @raise the first error of a command, when all commands are done
    def pipelined
      batch = Pipeline.new(@codec, @ttl)
      yield batch
      batch.commands.each_with_index { |command, i| check_size(batch.keys[i], command[1]) if command[1] }
      replies = perform_all(batch.keys, batch.commands, batch.repeatable?)
      failure = replies.find { |reply| reply.is_a?(Exception) }
      raise failure if failure

      rearm_all(batch, replies)
      replies.each_with_index.map { |reply, index| batch.result(index, reply) }
    end

    # @!group Connections

    # Closes all connections; those in use are closed after their operations. The client cannot be used afterwards.
    #
    # @return [nil]
    def close
      @servers.each(&:close)
      nil
    end

    # Closes the idle connections. The client stays usable.
    #
    # @return [nil]
    def disconnect
      @servers.each(&:disconnect)
      nil
    end

    # For programs that take clients from a connection_pool: this client has a pool of its own, and yields itself.
    #
    # @yieldparam cache [Memcached]
    def with
      yield self
    end

    # @return [String]
    def inspect
      "#<#{self.class} #{@servers.map(&:name).join(",")}>"
    end

    private

    # ---- called from C

    def wire_key(key)
      @keys.wire(key)
    end

    # The server for a key when its own may be down. With failover, keys move to the same server as dalli's.
    def route(key)
      server = server_for(key)
      return server if server.usable?

      if @failover && @servers.size > 1
        DETOURS.times do |try|
          other = server_for("#{try}#{key}")
          return other if other.usable?
        end
      end
      raise NoServerAvailable,
        "no server for this key is up: #{server.name} failed with #{server.error.inspect}", cause: server.error
    end

    def recover(server, error, key, again)
      server.failed(error)
      raise error unless again

      route(key)
    end

    # A plain read of a stale item took the right to compute the new value, which only #fetch may hold. Returns that
    # right, unless another client stored a new value meanwhile. Reads again if the CAS is unknown.
    def rearm(key, cas = nil)
      unless cas
        _, _, cas, *, state = read(key, false, nil, nil, nil)
        return unless cas && state.anybits?(STALE)
      end
      remove(key, cas, true)
    end

    # ----

    # Reads an item with its metadata. Returns nil also for an item whose first value is being computed.
    def look(key, ttl)
      entry = read(key, true, ttl, nil, nil)
      bytes, _, cas, *, state = entry
      return if bytes.nil? || making?(bytes, state)

      rearm(key, cas) if state.allbits?(WON | STALE)
      entry
    end

    # The same for the items that a batch read.
    def rearm_all(batch, replies)
      replies.each_with_index do |(_, bytes, *, state), index|
        rearm(batch.keys[index]) if bytes && state.allbits?(WON | STALE)
      end
    end

    def put(key, value, ttl, mode, cas, raw, **options)
      bytes, flags = encoded(value, raw, **options)
      check_size(key, bytes) if bytes.bytesize + 500 > @max_value_bytes
      store(key, bytes, flags, Expiry.seconds(ttl), mode, Numbers.unsigned(:cas, cas))
    end

    def encoded(value, raw, **options)
      return @codec.dump(value, **options) unless raw
      raise EncodeError, "raw: true takes a String, not a value of the class #{value.class}" unless value.is_a?(String)

      [value, 0]
    end

    def check_size(key, bytes)
      size = bytes.bytesize + key.to_s.bytesize + ITEM_OVERHEAD
      return if size <= @max_value_bytes

      raise ValueTooLarge, "an item of #{size} bytes (value: #{bytes.bytesize}) " \
        "exceeds max_value_bytes (#{@max_value_bytes}): compress the value, split it, " \
        "or raise max_value_bytes and the servers' option -I"
    end

    def decoded(bytes, flags, raw)
      (flags.zero? || raw) ? bytes : @codec.load(bytes, flags)
    end

    # Another caller computes the first value: the item is only a mark yet.
    def making?(bytes, state)
      bytes.empty? && state.anybits?(WON | WAITING) && !state.anybits?(STALE)
    end

    def others_make?(entry)
      bytes, *, state = entry
      bytes && state.nobits?(WON) && making?(bytes, state)
    end

    def make(key, bytes, cas, state, ttl, raw)
      complete = false
      value = yield
      stored, flags = encoded(value, raw)
      check_size(key, stored)
      # Does not overwrite a value that was stored meanwhile, nor restore an item that was deleted.
      store(key, stored, flags, Expiry.seconds(ttl), "S", cas)
      complete = true
      value
    ensure
      give_up(key, cas, making?(bytes, state)) if !complete && bytes
    end

    # Releases the lock, so that the others need not wait for its end. If there is an old value, the next #fetch
    # computes the new one.
    def give_up(key, cas, placeholder)
      Heddle.shield(GRACE) { remove(key, cas, placeholder ? nil : true) }
    rescue Error, IOError, SystemCallError, SocketError,
      *(OpenSSL::SSL::SSLError if Object.const_defined?("OpenSSL::SSL"))
      nil # of the server or of the connection; what another thread raises here goes on
    end
  end
end
