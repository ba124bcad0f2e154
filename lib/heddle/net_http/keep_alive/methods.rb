# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # Methods of Net::HTTP, by {MethodReplacement}. `def`, because other Ractors cannot call methods made of a block.
      module Methods
        # A session that ends leaves its connection to the next one.
        def do_finish
          KeepAlive.leave(self, @socket) if @socket
          do_finish_without_heddle
        end
        private :do_finish

        # Without a session the library adds "Connection: close" to a request that has no such field.
        def request(request, body = nil, &block)
          KeepAlive.note_implied_close(request) if !@started && KeepAlive.keeps?(self)
          request_without_heddle(request, body, &block)
        end

        # The library compares the version of the answer, which may have none, only if the request has no "close".
        def keep_alive?(request, response)
          return false if @curr_http_version.nil? && KeepAlive.implied(request)

          keep_alive_without_heddle?(request, response)
        end
        private :keep_alive?
      end

      # Methods that Net::HTTP does not have.
      module Additions
        # @return [Boolean] whether this session's connection may be kept for others, see {Heddle::NetHTTP.keep_alive}
        def keep_alive = KeepAlive.choice(self) != false

        # @param flag [Boolean] false: this object neither takes nor leaves a persistent connection
        def keep_alive=(flag)
          KeepAlive.set_choice(self, !!flag)
        end
      end

      # A method of the singleton class of Net::HTTPResponse, for reading by the library's own code.
      module Reading
        def read_status_line(socket)
          read_status_line_without_heddle(socket).tap { KeepAlive.answered(socket) }
        end
        private :read_status_line
      end
    end
  end
end
