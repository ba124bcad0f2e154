# frozen_string_literal: true

require "rbconfig"
require "tempfile"
require_relative "scheduling_delay"

# A process of the command `sidekiq` that runs test/support/sidekiq_app.rb. Times are in seconds.
class SidekiqProcess
  ROOT = File.expand_path("../..", __dir__)
  APP = File.expand_path("sidekiq_app.rb", __dir__)

  attr_reader :pid

  # @param url [String] of Redis
  # @param variables [Hash{String => String}] see sidekiq_app.rb
  def initialize(url, **variables)
    @log = Tempfile.new("sidekiq")
    environment = variables.transform_keys(&:to_s).transform_values(&:to_s)
    @pid = Process.spawn({"REDIS_URL" => url, **environment}, RbConfig.ruby, "-W:no-experimental", "-I#{ROOT}/lib",
      Gem.bin_path("sidekiq", "sidekiq"), "-r", APP, in: File::NULL, out: @log.path, err: @log.path)
  end

  def log = File.read(@log.path)

  def signal(name)
    Process.kill(name, @pid) unless @status
    self
  end

  # @return [Process::Status, nil] nil when it still runs after the time, without its scheduling delay
  def wait(seconds)
    limit = SchedulingDelay::Limit.new(seconds, @pid)
    until @status ||= Process.wait2(@pid, Process::WNOHANG)&.last
      return if limit.passed?

      sleep 0.01
    end
    @status
  end

  def stop
    signal(:KILL).wait(10)
    @log.close!
  end
end
