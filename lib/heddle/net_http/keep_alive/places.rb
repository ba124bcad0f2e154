# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # Connections or tickets, by their keys. A struct in C (ext/heddle/net_http/net_http_places.c), whose methods take
      # one step each: threads need no lock, and a Thread#raise finds nothing half done. Entries other than a
      # {Connection} have a variable `@key`.
      #
      # - `add(entry, most_beside, most)`: deletes and returns what came first, if there are now too many entries, or
      #   too many with the same host and port; otherwise nil
      # - `find(key)`: the entry with an equal key that came last; or nil
      # - `take(key)`: the same, and deletes it: nobody else gets it
      # - `delete(entry)`: returns whether it was there
      # - `to_a`: all, what came first at the beginning
      # - `clear`: deletes all, and returns them
      # - `size`: how many there are
      class Places
        Library.define_places(self, Connection)
      end
      private_constant :Places
    end
  end
end
