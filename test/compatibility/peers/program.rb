# frozen_string_literal: true

require "support/servers"

module Compatibility
  module Peers
    # A server of Debian's that only these tests need. A subclass says with which words it starts, and what it reads:
    #
    #   class Mosquitto < Program
    #     runs "mosquitto", package: "mosquitto"
    #     def arguments = ["-c", file("mosquitto.conf", "listener #{port} #{host}\n")]
    #   end
    class Program < Servers::Server
      class << self
        attr_reader :program, :package

        def runs(program, package: program)
          @program, @package = program, package
        end
      end

      private

      # Nothing of theirs is kept.
      def stop_signal = :KILL

      def check
        @path = program(self.class.program, package: self.class.package)
      end

      def command = [@path, *arguments]

      def arguments = []

      def ready?
        TCPSocket.open(host, port, &:close)
        true
      rescue SystemCallError
        false
      end

      # @return [String] the path of a new file
      def file(name, text, mode: 0o644)
        File.join(dir, name).tap do |path|
          File.write(path, text)
          File.chmod(mode, path)
          give(path)
        end
      end
    end
  end
end
