# frozen_string_literal: true

require_relative "scripted"

module Compatibility
  module Peers
    # Takes mails, and acknowledges each with the number in its text.
    class SMTP < Scripted
      private

      def play(socket)
        socket.write("220 ready\r\n")
        while (line = socket.gets("\r\n"))
          case line
          when /\ADATA/
            socket.write("354 go on\r\n")
            socket.write("250 taken as #{socket.gets("\r\n.\r\n")[/heddle\d+/] * 40}\r\n")
          when /\AQUIT/ then return socket.write("221 bye\r\n")
          else socket.write("250 fine\r\n")
          end
        end
      end
    end
  end
end
