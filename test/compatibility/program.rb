# frozen_string_literal: true

module Compatibility
  # A program that waits for an answer, for libraries that run programs.
  module Program
    # @return [Array<String>] prints the answer of the peer, which closes the connection after it
    def self.command(peer, number)
      ["bash", "-c", "exec 3<>/dev/tcp/#{peer.host}/#{peer.port}; echo heddle#{number} >&3; exec cat <&3"]
    end

    # @return [Proc] the peer's part
    def self.peer = ->(socket) { socket.puts(socket.gets.chomp * 40) }
  end
end
