# frozen_string_literal: true

require "fileutils"
require "heddle/lab/servers"
require "net/http"
require "socket"
require "tmpdir"
require_relative "scheduling_delay"

# A web server in a process of its own, as a user starts it, with a folder that it is started in.
class WebProcess
  ROOT = File.expand_path("../..", __dir__)
  PATIENCE = 20

  # Yields a running server, and stops it.
  def self.run(*arguments, **options)
    server = new(*arguments, **options)
    server.wait_until_ready
    yield server
  ensure
    server&.end
  end

  attr_reader :port, :folder, :log, :pid

  # @param command [Array<String>] PORT stands for the port, there and in files
  # @param files [Hash{String => String}] what is in its folder, by path
  # @param environment [Hash{String => String}]
  # @param tls [Boolean] whether the port speaks TLS
  def initialize(command, files:, environment: {}, tls: false)
    @scheme = tls ? "https" : "http"
    @folder = Dir.mktmpdir("heddle-web")
    @log = File.join(@folder, "log")
    @port = Heddle::Lab::Servers.free_port # no client beside it gets that one
    files.each { |name, text| write(File.join(@folder, name), text.gsub("PORT", @port.to_s)) }
    @pid = Process.spawn({"XDG_STATE_HOME" => @folder, **environment}, RbConfig.ruby,
      *command.map { |argument| argument.gsub("PORT", @port.to_s) }, :chdir => @folder, %i[out err] => [@log, "a"])
  end

  def wait_until_ready
    limit = SchedulingDelay::Limit.new(PATIENCE, @pid)
    begin
      get("/")
    rescue SystemCallError, OpenSSL::SSL::SSLError, EOFError, Net::ReadTimeout
      raise "the server did not start:\n#{written}" if limit.passed? || ended?

      sleep(0.02)
      retry
    end
  end

  # @return [String] its log
  def written = File.read(@log)

  def uri(path) = URI("#{@scheme}://127.0.0.1:#{@port}#{path}")

  # @return [Net::HTTPResponse]
  def get(path) = request(Net::HTTP::Get.new(uri(path)))

  # @param request [Net::HTTPRequest]
  # @return [Net::HTTPResponse]
  def request(request)
    options = {use_ssl: @scheme == "https", verify_mode: OpenSSL::SSL::VERIFY_NONE, max_retries: 0,
               read_timeout: Slowness.stretch(PATIENCE)}
    Net::HTTP.start("127.0.0.1", @port, **options) { |http| http.request(request) }
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

  def write(path, text)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text, perm: text.start_with?("#!") ? 0o755 : 0o644)
  end

  def ended? = @status ||= Process.wait2(@pid, Process::WNOHANG)&.last
end
