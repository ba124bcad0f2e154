# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # Connections or tickets, by their keys. Most methods are in C (ext/heddle/net_http/net_http_places.c), each in
      # one step: threads need no lock, and a Thread#raise finds nothing half done. Entries that are no {Connection}
      # have a variable `@key`.
      #
      # - `add(entry, most_beside, most)`: deletes and returns what came first, if there are now too many entries, or
      #   too many with the same host and port; otherwise nil
      # - `find(key)`: the entry with an equal key that came last; or nil
      # - `take(key)`: the same, and deletes it: nobody else gets it
      # - `delete(entry)`: returns whether it was there
      # - `to_a`: all, what came first at the beginning
      # - `clear`: deletes all, and returns them
      class Places
        def initialize
          @lists = {} # a number for host and port => Array of entries, the latest one at the end
          @all = {}.compare_by_identity # all entries, in the order in which they came
        end

        Library.define_places(self, Connection)

        def size = @all.size
      end
      private_constant :Places
    end
  end
end
