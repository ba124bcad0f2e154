# frozen_string_literal: true

require "open3"

module Heddle
  module Lab
    class Workload
      class HTTP < Workload
        # The program curl, a process for each body.
        class CurlProgram < Client
          implements "curl" => self

          # @see Client.versions
          def self.versions
            output, = Open3.capture2("curl", "--version")
            [output[/\Acurl \S+/], output[%r{libcurl/\S+}].tr("/", " ")]
          rescue Errno::ENOENT
            raise LoadError, "curl is not installed (Debian: apt install curl)"
          end

          # @see Client.processes?
          def self.processes? = true

          # @see Client#each_chunk
          def each_chunk(&block) = yield(run("--output", "-"))

          # Sends the body to /dev/null, as the block ignores it.
          # @see Client#block
          def block(tally) = tally.whole(run("--output", File::NULL, "--write-out", "%{size_download}").to_i)

          # @see Client#file
          def file(path) = run("--output", path)

          # @see Client#upload_file
          def upload_file(path) = run("--upload-file", path)

          private

          def run(*arguments)
            arguments << "--compressed" if @gzip
            arguments.push("--cacert", @ca_file) if @ca_file
            output, error, status =
              Open3.capture3("curl", "--silent", "--show-error", "--fail", *arguments, url, binmode: true)
            raise "curl: #{error.strip}" unless status.success?

            output
          end
        end
      end
    end
  end
end
