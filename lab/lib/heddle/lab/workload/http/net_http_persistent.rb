# frozen_string_literal: true

require_relative "stock"

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # net-http-persistent: a pool of connections over this Ruby's Net::HTTP, for programs that are written for it.
        class NetHTTPPersistent < Stock
          implements "net-http-persistent" => self

          # @see Client.versions
          def self.versions = [load_gem("net-http-persistent", "net/http/persistent"), *super]

          private

          def http
            @http ||= Net::HTTP::Persistent.new(name: "heddle-lab").tap { |http| http.ca_file = @ca_file if @ca_file }
          end

          def get
            body = nil
            http.request(@uri) do |response|
              check(response.code)
              body = yield response
            end
            body
          end

          def put
            request = Net::HTTP::Put.new(@uri.request_uri, "Content-Type" => "application/octet-stream")
            yield request
            http.request(@uri, request).body
          end

          def keep_alive
            nil while yield(one(nil))
          end

          def one(_) = http.request(@uri).body
        end
      end
    end
  end
end
