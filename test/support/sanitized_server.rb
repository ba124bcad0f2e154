# frozen_string_literal: true

require "heddle/lab"

# For a test class: its `program` is the lab's server, built to stop with an error at the first invalid access or
# leak.
module SanitizedServer
  def program = SanitizedServer.path || flunk("no sanitizers: #{SanitizedServer.reason}")

  class << self
    attr_reader :reason

    def path
      return @path if defined?(@path)

      source = Heddle::Lab::ServerProcess::SOURCE
      output = IO.popen(["make", "-C", source, "SANITIZE=1"], err: [:child, :out], &:read)
      built = $?.success?
      @reason = output.lines.last
      @path = built ? File.join(source, "heddle-server-asan") : nil
    end
  end
end
