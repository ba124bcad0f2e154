# frozen_string_literal: true

require "fileutils"
require "net/http"
require "socket"
require "tmpdir"
require_relative "scheduling_delay"
require_relative "servers"

# A falcon in a process of its own, as a user starts it.
class FalconProcess
  ROOT = File.expand_path("../..", __dir__)
  PATIENCE = 20

  # Yields a running falcon, and stops it.
  #
  # @param arguments [Array<String>] "serve" or "host" with their options; PORT stands for the port
  # @param files [Hash{String => String}] what is in its folder, by name
  # @param preload [String, nil] the library that RUBYOPT loads
  def self.run(*arguments, files:, preload: nil, tls: false, environment: {})
    falcon = new(arguments, files, preload, tls, environment)
    falcon.wait_until_ready
    yield falcon
  ensure
    falcon&.end
  end

  attr_reader :port, :folder, :log

  def initialize(arguments, files, preload, tls, environment)
    @scheme = tls ? "https" : "http"
    @folder = Dir.mktmpdir("heddle-falcon")
    @log = File.join(@folder, "log")
    @port = Heddle::Lab::Servers.free_port # no client beside it gets that one
    files.each { |name, text| File.write(File.join(@folder, name), text.gsub("PORT", @port.to_s)) }
    environment = environment.merge("RUBYOPT" => "-W0 -rbundler/setup -I#{ROOT}/lib #{"-r#{preload}" if preload}",
      "XDG_STATE_HOME" => @folder, "CONSOLE_LEVEL" => "info")
    @pid = Process.spawn(environment, RbConfig.ruby, Gem.bin_path("falcon", "falcon"),
      *arguments.map { |argument| argument.gsub("PORT", @port.to_s) }, :chdir => @folder, %i[out err] => @log)
  end

  def wait_until_ready
    limit = SchedulingDelay::Limit.new(PATIENCE, @pid)
    begin
      get("/")
    rescue SystemCallError, OpenSSL::SSL::SSLError, EOFError
      raise "falcon did not start:\n#{File.read(@log)}" if limit.passed? || ended?

      sleep(0.02)
      retry
    end
  end

  def uri(path) = URI("#{@scheme}://127.0.0.1:#{@port}#{path}")

  # @return [Net::HTTPResponse]
  def get(path)
    uri = uri(path)
    options = {use_ssl: @scheme == "https", verify_mode: OpenSSL::SSL::VERIFY_NONE, max_retries: 0,
               read_timeout: PATIENCE}
    Net::HTTP.start(uri.host, uri.port, **options) { |http| http.get(uri.request_uri) }
  end

  def signal(name) = Process.kill(name, @pid)

  # @return [Process::Status] nil if it has not ended after PATIENCE
  def wait
    limit = SchedulingDelay::Limit.new(PATIENCE, @pid)
    sleep(0.01) until ended? || limit.passed?
    @status
  end

  def end
    unless ended?
      signal(:INT)
      unless wait
        signal(:KILL)
        Process.wait(@pid)
      end
    end
    FileUtils.rm_rf(@folder)
  end

  private

  def ended? = @status ||= Process.wait2(@pid, Process::WNOHANG)&.last
end
