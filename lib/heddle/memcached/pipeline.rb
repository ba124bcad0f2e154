# frozen_string_literal: true

module Heddle
  class Memcached
    # The argument of {Memcached#pipelined}'s block. Each method adds a command; all commands are sent together when the
    # block ends. The returned Array has the results in the order of the commands.
    class Pipeline
      GET = 0
      SET = 1
      DELETE = 2
      ARITHMETIC = 3
      # Of ext/heddle/wire/memcached/messages.h.
      HD = 0
      VA = 1
      NF = 5
      # The order in which ext/heddle/memcached/batch.c reads a command: verb, bytes, flags, ttl, cas, mode,
      # delta, initial, stale.
      BYTES = 1
      EMPTY = [nil, nil, 0, nil, nil, nil, 0, nil, nil].freeze
      private_constant :GET, :SET, :DELETE, :ARITHMETIC, :HD, :VA, :NF, :BYTES, :EMPTY

      # @api private
      attr_reader :keys, :commands

      # @api private
      def initialize(codec, ttl)
        @codec = codec
        @ttl = ttl
        @keys = []
        @commands = []
      end

      # Result: the value, or nil.
      def get(key)
        note(key, GET)
      end

      # Result: true.
      def set(key, value, ttl: @ttl, cas: nil)
        store(key, value, ttl, nil, cas)
      end

      # Result: whether the key had no value.
      def add(key, value, ttl: @ttl)
        store(key, value, ttl, "E")
      end

      # Result: whether there was one.
      def replace(key, value, ttl: @ttl)
        store(key, value, ttl, "R")
      end

      # Result: whether there was one.
      def append(key, bytes)
        note(key, SET, bytes.to_s, 0, nil, nil, "A")
      end

      # Result: whether there was one.
      def prepend(key, bytes)
        note(key, SET, bytes.to_s, 0, nil, nil, "P")
      end

      # Result: whether there was one.
      def delete(key, cas: nil)
        note(key, DELETE, nil, 0, nil, Numbers.unsigned(:cas, cas))
      end

      # Result: the number, or nil.
      def incr(key, by = 1, initial: nil, ttl: @ttl)
        count(key, "I", by, initial, ttl)
      end

      # Result: the number, or nil.
      def decr(key, by = 1, initial: nil, ttl: @ttl)
        count(key, "D", by, initial, ttl)
      end

      # @api private
      def put(key, bytes, flags, ttl, mode, cas)
        note(key, SET, bytes, flags, Expiry.seconds(ttl), Numbers.unsigned(:cas, cas), (mode unless mode == "S"))
      end

      # Whether the server may execute all commands twice.
      #
      # @api private
      def repeatable?
        @commands.all? { |verb, _, _, _, cas, mode| verb != ARITHMETIC && cas.nil? && mode.nil? }
      end

      # @api private
      def result(index, (status, bytes, flags, *))
        case @commands[index].first
        when GET then (status == VA) ? value(bytes, flags) : nil
        when ARITHMETIC then (status == VA) ? Integer(bytes, 10) : nil
        else status == HD
        end
      end

      private

      def value(bytes, flags)
        flags.zero? ? bytes : @codec.load(bytes, flags, @allowance ||= @codec.allowance)
      end

      def store(key, value, ttl, mode, cas = nil)
        put(key, *@codec.dump(value), ttl, mode, cas)
      end

      def count(key, mode, by, initial, ttl)
        note(key, ARITHMETIC, nil, 0, Expiry.seconds(ttl), nil, mode, Numbers.unsigned(:by, by),
          Numbers.unsigned(:initial, initial))
      end

      def note(key, *command)
        @keys << Snapshot.of(key.to_s)
        command[BYTES] = Snapshot.of(command[BYTES]) if command[BYTES]
        @commands << command.concat(EMPTY.drop(command.size))
        nil
      end
    end
  end
end
