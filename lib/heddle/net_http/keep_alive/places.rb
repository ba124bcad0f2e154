# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # Connections or tickets, by the host and the port of their keys. Not safe for threads: its owner has a lock.
      #
      # A Thread#raise may strike anywhere. So an entry that is deleted leaves its host's list first, where a session
      # could find it, and then the table of all entries.
      class Places
        def initialize
          @hosts = {} # host => port => Array of entries, the latest one at the end
          @all = {}.compare_by_identity # all entries, in the order in which they came
        end

        def size = @all.size

        def empty? = @all.empty?

        # @return [Array] the entry that came first at the beginning
        def to_a = @all.keys

        def each(&block) = @all.each_key(&block)

        # @return [Object] the entry that came first of all
        def first = @all.first.first

        # @param key [Key]
        # @return [Array, nil] all entries for its host and port, the one that came last at the end
        def at(key)
          ports = @hosts[key.host]
          ports && ports[key.port]
        end

        # @param key [Key]
        # @return [Object, nil] the entry with the same key that came last
        def find(key)
          list = at(key) or return
          i = list.rindex { |entry| entry.key.same?(key) }
          i && list[i]
        end

        # Finds an entry, and deletes it.
        #
        # @param key [Key]
        # @return [Object, nil]
        def take(key)
          list = at(key) or return
          i = list.rindex { |entry| entry.key.same?(key) } or return
          entry = list.delete_at(i)
          forget(key) if list.empty?
          @all.delete(entry)
          entry
        end

        # @return [Array] all entries for its host and port
        def add(entry)
          @all[entry] = true
          key = entry.key
          ((@hosts[key.host] ||= {})[key.port] ||= []) << entry
        end

        def delete(entry)
          key = entry.key
          if (list = at(key))
            list.delete_if { |other| other.equal?(entry) }
            forget(key) if list.empty?
          end
          @all.delete(entry)
        end

        def clear
          @hosts.clear
        ensure
          @all.clear
        end

        private

        def forget(key)
          ports = @hosts[key.host]
          ports.delete(key.port)
          @hosts.delete(key.host) if ports.empty?
        end
      end
      private_constant :Places
    end
  end
end
