# frozen_string_literal: true

module ClientFuzz
  module Operations
    # Heddle::Memcached. Each value begins with its key. Any value of the key is right: an interrupted store may still
    # reach the server.
    module Memcached
      private

      def cache = @clients.memcached

      def key = @key ||= "k#{@number}"

      def check(key, value, what)
        own = value.nil? || (value.is_a?(String) && value.start_with?("#{key}:"))
        expect(own, "#{what} of #{key} is #{value.inspect[0, 200]}")
      end

      def operation_memcached_single
        cache.set(key, "#{key}:#{@token}")
        value = cache.get(key)
        check(key, value, "the stored value")
      end

      def operation_memcached_large
        large = "#{key}:#{@token * roll(10_000)}"
        cache.set(key, large)
        check(key, cache.get(key), "the large value")
      end

      def operation_memcached_multi
        pairs = Array.new(1 + roll(50)) { |n| ["#{key}n#{n}", "#{key}n#{n}:#{@token}"] }.to_h
        cache.set_multi(pairs)
        found = cache.get_multi(*pairs.keys)
        found.each { |name, value| check(name, value, "one of get_multi's") }
      end

      def operation_memcached_foreign
        other = "k#{1 + roll(@number)}"
        check(other, cache.get(other), "get")
        entry = cache.get_entry(other)
        check(other, entry&.value, "get_entry")
      end

      def operation_memcached_fetch
        name = "f#{roll(20)}"
        value = cache.fetch(name, ttl: 1, lock: 1) { "#{name}:#{@token}" }
        check(name, value, "fetch")
      end

      def operation_memcached_pipelined
        n = roll(1000)
        cache.set("#{key}c", n.to_s, raw: true)
        results = cache.pipelined do |batch|
          batch.set(key, "#{key}:#{@token}")
          batch.get(key)
          batch.incr("#{key}c", 1)
        end
        check(key, results[1], "a pipeline's get")
        counted = results[2].nil? || results[2].is_a?(Integer)
        expect(counted && results[0] == true, "a pipeline's results are #{results.inspect[0, 200]}")
      end

      def operation_memcached_cas
        cache.set(key, "#{key}:0")
        cache.cas(key) do |value|
          check(key, value, "cas")
          "#{key}:#{@token}"
        end
      end

      def operation_memcached_delete
        cache.delete(key, stale_for: [nil, 1].sample(random: @random))
        check(key, cache.get(key), "get after delete")
      end
    end
  end
end
