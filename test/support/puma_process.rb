# frozen_string_literal: true

require "json"
require_relative "web_process"

# A Puma in a process of its own, with plugin :heddle and the application of test/support/puma_application.ru.
class PumaProcess < WebProcess
  APPLICATION = File.read(File.join(ROOT, "test/support/puma_application.ru")).freeze
  CONTROL = ["--control-url", "unix://control", "--control-token", "none", "--state", "state"].freeze
  RUBYOPT = "-W0 -rbundler/setup -I#{ROOT}/lib"

  # @param configuration [String] lines of config/puma.rb behind those that each has
  # @param fibers [Integer, nil] nil to say nothing of them
  # @param threads [Integer, nil] nil to say nothing of them
  # @param bind [String]
  def initialize(configuration = "", fibers: 200, threads: nil, bind: "tcp://127.0.0.1:PORT", files: {},
    environment: {}, **options)
    lines = ["plugin :heddle", ("heddle fibers: #{fibers}" if fibers), ("threads #{threads}, #{threads}" if threads),
      "bind '#{bind}'", "environment 'production'", "tag ''", configuration]
    super([Gem.bin_path("puma", "puma"), "-C", "puma.rb", *CONTROL, "config.ru"],
      files: {"config.ru" => APPLICATION, "puma.rb" => lines.compact.join("\n"), **files},
      environment: {"RUBYOPT" => RUBYOPT, **environment}, **options)
  end

  # @return [Hash] of the server, or of its first worker
  def stats
    stats = JSON.parse(control("stats")[/\{.*\}/m])
    stats.key?("worker_status") ? stats["worker_status"].first.fetch("last_status") : stats
  end

  # @return [Array<Integer>] the worker processes
  def workers = JSON.parse(control("stats")[/\{.*\}/m]).fetch("worker_status").map { |worker| worker.fetch("pid") }

  # @return [String] what pumactl says
  def control(command)
    pumactl = [RbConfig.ruby, Gem.bin_path("puma", "pumactl"), "-S", "state", command]
    IO.popen({"RUBYOPT" => "-W0 -rbundler/setup"}, pumactl, chdir: @folder, err: %i[child out], &:read)
  end

  # Yields a connection.
  def connect
    socket = TCPSocket.new("127.0.0.1", @port)
    yield socket
  ensure
    socket&.close
  end
end
