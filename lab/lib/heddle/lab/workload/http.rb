# frozen_string_literal: true

require "fileutils"
require "tempfile"
require "tmpdir"
require "uri"
require "zlib"
require "heddle/lab/workload"
require "heddle/lab/workload/foreign_program"
require "heddle/lab/workload/http/client"

module Heddle
  module Lab
    class Workload
      # Bodies fetched and sent, and small requests, by one HTTP client.
      class HTTP < Workload
        for_bench "http"

        WARM_UP = 50
        # Seconds after which no more small requests are begun: beside busy threads each may take two quanta.
        PATIENCE = 5
        private_constant :WARM_UP, :PATIENCE

        # @see Workload#prepare
        def prepare
          @program = ForeignProgram.of(@kind)
          return @program.versions if @program

          Client.load(@kind) unless Client.kinds.key?(@kind)
          Client.fetch(@kind).versions
        end

        # @see Workload#perform
        def perform(meter)
          @tally = Client::Tally.new
          send(@params.fetch("what"), meter)
          meter.measures.merge!(@params.slice("site", "test"))
        end

        private

        def client(url)
          Client.fetch(@kind).new(URI(url), ca_file: @params["ca_file"], gzip: @params["shape"] == "gzip")
        end

        # Before the measurement, fetches everything as often from the server itself, without the distance: the first
        # time to check the body, then to warm up. The limits of Ruby's garbage collector and of malloc grow during the
        # first 200 MB, which costs each client the same. Measured bodies are only counted.
        def download(meter)
          near, far = [@params["direct"], @params["url"]].map { |url| client(url) }
          Dir.mktmpdir("heddle-bodies") do |directory| # this process ends without cleaning up
            @path = File.join(directory, "body")
            right = checked(near)
            warm_up { fetch(near) }
            last = nil
            busily { measure_transfers(meter) { last = fetch(far) } }
            right &&= last == :counted || same?(last)
            judge(meter, right && @tally.bytes == @params["bytes"] * @params["repeat"])
          end
        end

        def warm_up
          (@params["repeat"] - 1).times { yield }
          @tally = Client::Tally.new
        end

        def measure_transfers(meter)
          meter.measure do
            before = Process.times
            @params["repeat"].times { yield }
            {"operations" => @params["repeat"], **@tally.to_h,
             **(Client.fetch(@kind).processes? ? of_processes(before, Process.times) : {})}
          end
        end

        # The CPU time of the processes for which this process has waited.
        def of_processes(before, after)
          user, system = after.cutime - before.cutime, after.cstime - before.cstime
          {"user" => user, "system" => system, "cpu" => user + system, "allocations" => nil, "peak_rss_kib" => nil}
        end

        # Fetches the body once, to its destination, and counts its bytes.
        # @return [String, Symbol] the body, :file, or :counted if no body is kept
        def fetch(client)
          case @params["to"]
          when "block"
            client.block(@tally)
            :counted
          when "string" then client.string.tap { |body| @tally.whole(body.bytesize) }
          else
            to_file(client)
            @tally.whole(File.size(@path))
            :file
          end
        end

        # Fetches the body and checks it.
        def checked(client)
          case @params["to"]
          when "block" then blocks_right?(client)
          when "string" then same?(client.string)
          else same?(to_file(client))
          end
        end

        # A new file each time: some clients append to an existing file.
        def to_file(client)
          FileUtils.rm_f(@path)
          client.file(@path)
          :file
        end

        def blocks_right?(client)
          crc = bytes = 0
          client.each_chunk { |chunk| crc, bytes = Zlib.crc32(chunk, crc), bytes + chunk.bytesize }
          [bytes, crc] == @params.values_at("bytes", "crc")
        end

        def same?(body)
          body = File.binread(@path) if body == :file
          [body.bytesize, Zlib.crc32(body)] == @params.values_at("bytes", "crc")
        end

        # The server compares the body that comes with the one it would send.
        def upload(meter)
          body = pattern
          near, far = [@params["direct"], @params["url"]].map { |url| client(url) }
          wanted = %({"bytes":#{@params["bytes"]},"right":true})
          Tempfile.create("heddle-upload") do |file|
            file.binmode
            file.write(body)
            file.flush
            send_one = ->(to) { (@params["from"] == "file") ? to.upload_file(file.path) : to.upload_string(body) }
            right = send_one.call(near).to_s.strip == wanted
            warm_up { send_one.call(near) }
            busily do
              measure_transfers(meter) do
                right &&= send_one.call(far).to_s.strip == wanted
                @tally.sent(@params["bytes"])
              end
            end
            judge(meter, right)
          end
        end

        # The load server's, see LoadServer.body.
        def pattern
          whole = (0...(1 << 20)).step(16).map { |offset| format("%015x\n", offset) }.join.b
          (whole * (@params["bytes"] / whole.bytesize)) << whole.byteslice(0, @params["bytes"] % whole.bytesize)
        end

        def small(meter)
          return meter.measure { foreign } if @program

          client = client(@params["url"])
          kind = @params["small"]
          wrong = 0
          run = lambda do |count|
            limit = Clock.now + PATIENCE
            done = 0
            client.small(kind) do |body|
              wrong += 1 unless body == "done"
              done += 1
              done < count && Clock.now < limit
            end
            done
          end
          run.call((kind == "late") ? 3 : WARM_UP) # late requests mostly wait
          busily do
            meter.measure do
              done = run.call(@params["requests"])
              {"operations" => done - wrong, "errors" => wrong, "bytes" => 4 * done, "small" => kind,
               "digest_ok" => wrong.zero?, "first_error" => ("an answer that is not \"done\"" if wrong.positive?)}
            end
          end
          note_trouble(meter, again: true)
        end

        def foreign
          url, requests, kind = @params.values_at("url", "requests", "small")
          measures = @program.request(url, requests, at_once: 1, kept: kind == "keep-alive",
            warm_up: {URI.join(url, "/0").to_s => ForeignProgram::WARM_UPS})
          operations, errors = measures.values_at("operations", "errors")
          measures.merge("bytes" => 4 * operations, "small" => kind, "digest_ok" => errors.zero?)
        end

        # Keeps the threads that compute while the block runs.
        def busily
          threads = Array.new(@params["busy_threads"]) { Thread.new { loop { 1 + 1 } } }
          yield
        ensure
          threads&.each(&:kill)
        end

        def judge(meter, right)
          meter.measures.merge!("digest_ok" => right, "errors" => right ? 0 : 1)
          meter.measures["first_error"] = "a body that is not the one that was sent: #{@tally.bytes} bytes" unless right
          note_trouble(meter, again: @params["repeat"] > 1)
        end

        # An error that the implementation itself reports, even if all answers are right.
        def note_trouble(meter, again:)
          trouble = Client.fetch(@kind).trouble(again: again)
          meter.measures.merge!("errors" => 1, "first_error" => trouble) if trouble
        end
      end
    end
  end
end
