# frozen_string_literal: true

require "heddle/lab/workload"

module Heddle
  module Lab
    class Workload
      # Many objects at once by unmodified aws-sdk-s3.
      class S3 < Workload
        for_bench "s3"

        OBJECTS = 20
        BODY = "an object of the bench\n" * 400
        WARM_UP = 200
        private_constant :OBJECTS, :BODY, :WARM_UP

        # @see Workload#prepare
        def prepare
          versions = [load_gem("aws-sdk-s3")]
          case @kind
          when "pool" then versions + load_heddle
          when "async" then versions + load_async
          else versions
          end
        end

        # @see Workload#perform
        def perform(meter)
          direct = client(@params["direct"])
          OBJECTS.times { |i| direct.put_object(bucket: @params["bucket"], key: "bench/#{i}", body: BODY) }
          @client = direct
          [WARM_UP, @params["requests"]].min.times { |i| get(i) } # the server compiles what it runs often
          @client = client(@params["port"])
          requests = @params["requests"]
          meter.measure do
            right = send(@kind, requests).count(BODY)
            {"operations" => right, "errors" => requests - right, "first_error" => ("another body" if right < requests),
             "delay" => @params["delay"]}
          end
        end

        private

        def get(i) = @client.get_object(bucket: @params["bucket"], key: "bench/#{i % OBJECTS}").body.read

        def pool(requests) = Heddle::FiberPool.new(@argument).map(0...requests) { |i| get(i) }

        def async(requests) = Sync { |task| Array.new(requests) { |i| task.async { get(i) } }.map(&:wait) }

        def threads(requests)
          numbers = Thread::Queue.new((0...requests).to_a)
          numbers.close
          Array.new(@argument) do
            Thread.new do
              bodies = []
              while (i = numbers.pop)
                bodies << get(i)
              end
              bodies
            end
          end.flat_map(&:value)
        end

        def client(port)
          Aws::S3::Client.new(
            endpoint: "http://127.0.0.1:#{port}", region: "us-east-1", force_path_style: true, retry_limit: 0,
            http_read_timeout: 60, access_key_id: @params["access_key"], secret_access_key: @params["secret_key"],
            request_checksum_calculation: "when_required", response_checksum_validation: "when_required"
          )
        end
      end
    end
  end
end
