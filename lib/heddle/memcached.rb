# frozen_string_literal: true

require "heddle"

module Heddle
  # A client of memcached, for threads and fibers, whose every operation ends in time. Keys are spread over several servers as
  # dalli spreads them, and values are stored so that dalli can read them and the other way round.
  #
  # An operation that fails in a way that trying again may help (its server has restarted, or is gone and another takes its
  # keys) is tried again within its time, unless it may have been done already and must not be done twice: add, replace,
  # append, prepend, incr, decr, and whatever names a CAS. Whatever ends an operation in the middle closes its connection.
  #
  # Times to live (+ttl+) are seconds, also more than 30 days, or a Time; nil and 0: for ever.
  #
  # Values are read with Marshal unless another serializer is set: whoever can write to the servers can run code here.
  #
  # @example
  #   cache = Heddle::Memcached.new("127.0.0.1:11211", timeout: 0.25)
  #   cache.fetch("front page", ttl: 60) { render }
  class Memcached
    # Seconds that an operation may take, all tries together, unless the client says otherwise.
    TIMEOUT = 1
    # Connections to each server at most.
    POOL = 16
    # Bytes of an item, see +max_value_bytes+.
    MAX_VALUE_BYTES = 1 << 20
    # Bytes of memcached's own in an item, beside key and value.
    ITEM_OVERHEAD = 63
    # Seconds that #fetch leaves to whoever makes a value.
    LOCK = 10
    # Seconds that cleaning up may take after a block has failed.
    GRACE = 0.5
    # Pauses of those who wait for another to make a value, in seconds: the first and the longest.
    PAUSES = [0.005, 0.1].freeze
    # Of ext/heddle/wire/wire_memcached.h.
    WON = 1 << 6
    STALE = 1 << 7
    WAITING = 1 << 8
    # How many servers beside its own a key may move to.
    DETOURS = 19
    private_constant :MAX_VALUE_BYTES, :ITEM_OVERHEAD, :LOCK, :GRACE, :PAUSES, :WON, :STALE, :WAITING, :DETOURS

    # What is known of an item beside its value.
    #
    # @!attribute value
    #   @return [Object] the value
    # @!attribute flags
    #   @return [Integer] what the client stored beside it
    # @!attribute cas
    #   @return [Integer] changes with every change
    # @!attribute ttl
    #   @return [Integer, nil] seconds left; nil: for ever
    # @!attribute idle
    #   @return [Integer] seconds since it was last asked for
    # @!attribute hit
    #   @return [Boolean] whether it had been asked for before
    # @!attribute stale
    #   @return [Boolean] whether {Memcached#delete} marked it stale
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

    # The methods in C: get, get_multi and what the others are made of.
    Heddle.send(:define_memcached)

    autoload :DalliCompatible, File.expand_path("memcached/dalli_compatible", __dir__)

    # Connects to nothing yet.
    #
    # @param servers [String, Array<String>, nil] see {Address}; nil: those of MEMCACHE_SERVERS, or the one on this machine
    # @param timeout [Numeric, nil] seconds that an operation may take, connecting and trying again included
    # @param connect_timeout [Numeric, nil] seconds that connecting may take, if that is less
    # @param ttl [Numeric, nil] time to live of what is stored without one
    # @param pool [Integer] connections to each server at most; who comes when all are in use waits for the next
    # @param pool_timeout [Numeric, nil] seconds that waiting for a connection may take, if that is less than +timeout+
    # @param namespace [String, Proc, nil] in front of every key, with +namespace_separator+ between
    # @param serializer [:marshal, :json, :string, #dump & #load] Strings in UTF-8 or without an encoding are stored as they
    #   are, unless +plain_strings+ is false
    # @param compress [Boolean] values of +min_compress_bytes+ bytes and more
    # @param compressor [#compress & #decompress, nil] zlib, unless it is set
    # @param max_decompressed_bytes [Integer] bytes that a value may have once it is decompressed; all those of one
    #   reply may have four times as many
    # @param max_value_bytes [Integer, nil] the servers' limit for items, their option -I: what is larger is not sent
    # @param failover [Boolean] whether the keys of a server that is down go to another
    # @param failures [Integer] in a row until a server counts as down
    # @param retry_after [Numeric] seconds that it is left alone then, at first; doubled each time up to +max_retry_after+
    # @param tls [Boolean, Hash, OpenSSL::SSL::SSLContext] see {Stream.connect}; for all servers but sockets of this machine
    # @param username [String, nil] of servers that were started with -Y, with +password+
    # @param keepalive [Boolean] whether the kernel asks now and then if the peer is still there
    # @param digest [#hexdigest, nil] for keys that are too long; MD5 by itself
    # @raise [ArgumentError]
    def initialize(servers = nil, timeout: TIMEOUT, connect_timeout: nil, ttl: nil, pool: POOL, pool_timeout: nil,
      namespace: nil, namespace_separator: ":", digest: nil, serializer: :marshal, plain_strings: true, compress: true,
      min_compress_bytes: Codec::MIN_COMPRESS_BYTES, compressor: nil, max_decompressed_bytes: Codec::MAX_DECOMPRESSED_BYTES,
      max_value_bytes: MAX_VALUE_BYTES, failover: true, failures: 2, retry_after: 1, max_retry_after: 30, tls: false, username: nil,
      password: nil, keepalive: false)
      addresses = Address.all(servers)
      @keys = Keys.new(namespace: namespace, separator: namespace_separator, digest: digest)
      @codec = Codec.new(serializer: serializer, plain_strings: plain_strings, compressor: compressor, compress: compress,
        min_compress_bytes: min_compress_bytes, max_decompressed_bytes: max_decompressed_bytes)
      @timeout = timeout
      @ttl = Expiry.seconds(ttl) && ttl
      @max_value_bytes = max_value_bytes || Float::INFINITY
      @failover = failover
      @servers = addresses.map do |address|
        Server.new(address, pool: pool, pool_timeout: pool_timeout, connect_timeout: connect_timeout, tls: tls, username: username,
          password: password, keepalive: keepalive, failures: failures, retry_after: retry_after, max_retry_after: max_retry_after)
      end
      set_up(@servers, Ring.points(addresses), @codec, timeout, @keys.fixed_prefix)
    end

    # @!group Reading

    # An item with all that is known of it.
    #
    # @param key [#to_s]
    # @param raw [Boolean] the bytes as they are stored, whatever they stand for
    # @return [Entry, nil]
    def get_entry(key, raw: false)
      bytes, flags, cas, ttl, idle, hit, state = look(key, nil)
      return if bytes.nil?

      Entry.new(value: decoded(bytes, flags, raw), flags: flags, cas: cas, ttl: (ttl unless ttl == -1), idle: idle, hit: hit,
        stale: state.anybits?(STALE))
    end

    # @param raw [Boolean] see {#get_entry}
    # @return [Array(Object, Integer), nil] the value and its CAS, for #set and #delete with +cas:+
    def get_cas(key, raw: false)
      entry = get_entry(key, raw: raw)
      entry && [entry.value, entry.cas]
    end

    # Reads and gives it another time to live.
    #
    # @param raw [Boolean] see {#get_entry}
    # @return [Object, nil]
    def gat(key, ttl, raw: false)
      bytes, flags = look(key, Expiry.seconds(ttl) || 0)
      bytes && decoded(bytes, flags, raw)
    end

    # Gives it another time to live.
    #
    # @return [Boolean] whether it was there
    def touch(key, ttl = @ttl)
      touched(key, Expiry.seconds(ttl) || 0)
    end

    # @!group Writing

    # @param value [Object]
    # @param ttl [Numeric, Time, nil] see {Memcached}
    # @param cas [Integer, nil] only if it is there and has this
    # @param raw [Boolean] whether the value is a String of bytes that are stored as they are
    # @return [Boolean] true; false when +cas+ did not match
    # @raise [ValueTooLarge, EncodeError]
    def set(key, value, ttl: @ttl, cas: nil, raw: false)
      put(key, value, ttl, "S", cas, raw) ? true : false
    end

    # Stores it unless there is one.
    #
    # @return [Boolean] whether it was stored
    def add(key, value, ttl: @ttl, raw: false)
      put(key, value, ttl, "E", nil, raw) ? true : false
    end

    # Stores it only if there is one.
    #
    # @return [Boolean] whether it was stored
    def replace(key, value, ttl: @ttl, raw: false)
      put(key, value, ttl, "R", nil, raw) ? true : false
    end

    # Puts bytes behind what is there.
    #
    # @return [Boolean] whether there was something
    def append(key, bytes)
      store(key, bytes.to_s, 0, nil, "A", nil) ? true : false
    end

    # Puts bytes in front of what is there.
    #
    # @return [Boolean] whether there was something
    def prepend(key, bytes)
      store(key, bytes.to_s, 0, nil, "P", nil) ? true : false
    end

    # @param cas [Integer, nil] only if it has this
    # @param stale_for [Numeric, nil] seconds: marks it stale instead, so that #fetch has one caller make it anew, and gives the
    #   others the old value meanwhile
    # @return [Boolean] whether it was there (and had the CAS)
    def delete(key, cas: nil, stale_for: nil)
      remove(key, Numbers.unsigned(:cas, cas), Expiry.seconds(stale_for)) == true
    end

    # Adds to a number, which is stored as its digits; beyond 64 bits it begins at 0 again.
    #
    # @param by [Integer]
    # @param initial [Integer, nil] what to begin with if there is none
    # @return [Integer, nil] the number then; nil: there is none
    # @raise [NotANumber]
    def incr(key, by = 1, initial: nil, ttl: @ttl)
      count(key, "I", Numbers.unsigned(:by, by), Numbers.unsigned(:initial, initial), Expiry.seconds(ttl))
    end

    # Takes away from a number, down to 0.
    #
    # @return [Integer, nil] see {#incr}
    def decr(key, by = 1, initial: nil, ttl: @ttl)
      count(key, "D", Numbers.unsigned(:by, by), Numbers.unsigned(:initial, initial), Expiry.seconds(ttl))
    end

    # Changes a value unless somebody else does: the block is given the value and returns the new one.
    #
    # @yieldparam value [Object]
    # @return [Boolean, nil] whether it was stored; nil: there was none, the block was not called
    def cas(key, ttl: @ttl)
      value, cas = get_cas(key)
      return if cas.nil?

      set(key, yield(value), ttl: ttl, cas: cas)
    end

    # What is stored, or else what the block makes, which is then stored. However many ask at once, in however many processes,
    # one of them makes it: the others wait, or get the old value if there is one.
    #
    # @param ttl [Numeric, Time, nil] see {Memcached}
    # @param refresh [Numeric, nil] seconds: once less is left of its time, one caller makes it anew while the others still
    #   get the old value
    # @param lock [Numeric] seconds: how long the others wait for whoever makes it; then the next one does
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
        patience ||= now + 2 * lock_seconds
        return yield if now > patience # a key that others make again and again, and never in time

        sleep(pause)
        pause = [pause * 2, longest].min
        entry = read(key, true, nil, lock_seconds, refresh)
      end
      bytes, flags, cas, *, state = entry
      (bytes && state.nobits?(WON)) ? decoded(bytes, flags, raw) : make(key, bytes, cas, state, ttl, raw) { yield }
    end

    # @!group Many at once

    # Stores all of them, at once on all servers. What went wrong is raised in the end; others may be stored then.
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
    # @return [Integer] how many of them there were
    def delete_multi(*keys)
      remove_all(keys.flatten)
    end

    # Commands that are sent together when the block ends, at once to all servers.
    #
    # @example
    #   cache.pipelined do |batch|
    #     batch.set("a", 1)
    #     batch.incr("b", 1, initial: 0)
    #   end                             #=> [true, 0]
    # @yieldparam batch [Pipeline]
    # @return [Array] the results, in order
    # @raise the first error of a command, once all are done
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

    # Closes all connections; those in use when their operations are over. The client cannot be used afterwards.
    #
    # @return [nil]
    def close
      @servers.each(&:close)
      nil
    end

    # Closes the connections that nobody uses. The client stays usable.
    #
    # @return [nil]
    def disconnect
      @servers.each(&:disconnect)
      nil
    end

    # For programs that take clients from a connection_pool: this one is a pool by itself.
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

    # The server for a key when its own may be down. With failover, keys go where dalli's would.
    def route(key)
      server = server_for(key)
      return server if server.usable?

      if @failover && @servers.size > 1
        DETOURS.times do |try|
          other = server_for("#{try}#{key}")
          return other if other.usable?
        end
      end
      raise NoServerAvailable, "no server is up that may have the key: #{server.name} failed with #{server.error.inspect}", cause: server.error
    end

    def recover(server, error, key, again)
      server.failed(error)
      raise error unless again

      route(key)
    end

    # A look at a stale item has taken the right to make it anew, which belongs to #fetch: it is given back, unless somebody
    # has stored another one meanwhile. Without its CAS, looks again.
    def rearm(key, cas = nil)
      unless cas
        _, _, cas, *, state = read(key, false, nil, nil, nil)
        return unless cas && state.anybits?(STALE)
      end
      remove(key, cas, true)
    end

    # ----

    # What is known of an item that is only looked at; nil also for one that is being made.
    def look(key, ttl)
      entry = read(key, true, ttl, nil, nil)
      bytes, _, cas, *, state = entry
      return if bytes.nil? || making?(bytes, state)

      rearm(key, cas) if state.allbits?(WON | STALE)
      entry
    end

    # The same for what a batch has read.
    def rearm_all(batch, replies)
      replies.each_with_index do |(_, bytes, *, state), index|
        rearm(batch.keys[index]) if bytes && state.allbits?(WON | STALE)
      end
    end

    def put(key, value, ttl, mode, cas, raw, compress = nil)
      bytes, flags = encoded(value, raw, compress)
      check_size(key, bytes) if bytes.bytesize + 500 > @max_value_bytes
      store(key, bytes, flags, Expiry.seconds(ttl), mode, Numbers.unsigned(:cas, cas))
    end

    def encoded(value, raw, compress = nil)
      return @codec.dump(value, compress: compress) unless raw
      raise EncodeError, "raw: true stores Strings only: got a #{value.class}" unless value.is_a?(String)

      [value, 0]
    end

    def check_size(key, bytes)
      size = bytes.bytesize + key.to_s.bytesize + ITEM_OVERHEAD
      return if size <= @max_value_bytes

      raise ValueTooLarge, "an item of #{size} bytes (#{bytes.bytesize} of them the value) is more than the #{@max_value_bytes} that servers take: compress it, store it in parts, or raise max_value_bytes and the servers' -I"
    end

    def decoded(bytes, flags, raw)
      (flags.zero? || raw) ? bytes : @codec.load(bytes, flags)
    end

    # Somebody makes the value for the first time: there is nothing yet but a mark.
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
      # Not over what somebody stored, or in place of what somebody deleted, meanwhile.
      store(key, stored, flags, Expiry.seconds(ttl), "S", cas)
      complete = true
      value
    ensure
      give_up(key, cas, making?(bytes, state)) if !complete && bytes
    end

    # So that the others need not wait until the lock is over; where there is an old value, the next who fetches makes the new one.
    def give_up(key, cas, placeholder)
      Heddle.shield(GRACE) { remove(key, cas, placeholder ? nil : true) }
    rescue
      nil
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
