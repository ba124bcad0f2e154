# frozen_string_literal: true

module Heddle
  module Rack
    # How long the sender of a request still waits for the response, by the headers that clients and proxies send.
    #
    # @api private
    module RequestedTime
      NUMBER = /\A\d{1,10}(?:\.\d{1,9})?\z/
      # https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
      GRPC = /\A(\d{1,8})([HMSmun])\z/
      GRPC_UNITS = {"H" => 3600.0, "M" => 60.0, "S" => 1.0, "m" => 1e-3, "u" => 1e-6, "n" => 1e-9}.freeze
      private_constant :NUMBER, :GRPC, :GRPC_UNITS

      # Seconds that each header leaves; nil for a value that is none.
      HEADERS = {
        "HTTP_REQUEST_TIMEOUT" => ->(value) { Float(value) if value.match?(NUMBER) },
        "HTTP_X_REQUEST_DEADLINE" => ->(value) { Float(value) - Time.now.to_f if value.match?(NUMBER) },
        "HTTP_GRPC_TIMEOUT" => ->(value) { GRPC.match(value) { |match| match[1].to_i * GRPC_UNITS.fetch(match[2]) } },
        "HTTP_X_ENVOY_EXPECTED_RQ_TIMEOUT_MS" => ->(value) { Float(value) / 1000 if value.match?(NUMBER) }
      }.freeze
      private_constant :HEADERS

      # @param env [Hash] Rack's environment
      # @return [Float, nil] seconds, 0 if the time has passed; nil if no header tells
      def self.of(env)
        HEADERS.filter_map { |name, seconds| (value = env[name]) && seconds.call(value.strip) }.min&.clamp(0.0, nil)
      end
    end
    private_constant :RequestedTime
  end
end
