# frozen_string_literal: true

require_relative "program"

module Compatibility
  module Peers
    class NATS < Program
      runs "nats-server"

      private

      def arguments = ["-a", host, "-p", port.to_s]
    end
  end
end
