# frozen_string_literal: true

require "bundler/setup"
require "heddle"
require_relative "puma_process"
require_relative "slowness"

# Thousands of open streams of events in one process of Puma with plugin :heddle: what each of them takes of memory, and
# what they cost another page, beside the same server without streams. Then all clients leave.
#
#   ruby -Ilib test/support/streams_soak.rb rack|rails [STREAMS]
class StreamsSoak
  TOPIC = <<~RUBY
    class Topic
      @queues = {}.compare_by_identity
      @endings = []

      class << self
        attr_reader :endings

        def subscribe
          queue = Thread::Queue.new
          @queues[queue] = true
          yield queue
        ensure
          @queues.delete(queue)
          @endings << Process.clock_gettime(Process::CLOCK_MONOTONIC)
        end

        def publish(event) = @queues.each_key { |queue| queue << event }

        def state = "\#{@queues.size} \#{Puma.stats_hash.fetch(:running)} \#{Thread.list.size}"
      end
    end
  RUBY
  RACK = <<~RUBY
    class Stream
      def each
        Topic.subscribe do |queue|
          yield "data: begun\\n\\n"
          loop { yield "data: \#{queue.pop}\\n\\n" }
        end
      end
    end

    run(lambda do |env|
      case env["PATH_INFO"]
      when "/stream" then [200, {"content-type" => "text/event-stream"}, Stream.new]
      when "/publish" then [200, {}, [Topic.publish("more").to_s[0, 0]]]
      when "/state" then [200, {}, [Topic.state]]
      when "/endings" then [200, {}, [Topic.endings.join(" ")]]
      else [200, {}, ["page"]]
      end
    end)
  RUBY
  RAILS = <<~RUBY
    require "logger"
    require "action_controller/railtie"
    require "heddle/rails"
    class Application < Rails::Application
      config.load_defaults "\#{Rails::VERSION::MAJOR}.\#{Rails::VERSION::MINOR}"
      config.eager_load = true
      config.secret_key_base = "0" * 64
      config.logger = Logger.new(nil)
      config.hosts.clear
    end
    class PagesController < ActionController::Base
      def page = render(plain: "page")
      def publish = render(plain: Topic.publish("more").to_s[0, 0])
      def state = render(plain: Topic.state)
      def endings = render(plain: Topic.endings.join(" "))
    end
    class StreamsController < ActionController::Base
      include ActionController::Live
      def stream
        response.headers["Content-Type"] = "text/event-stream"
        sse = SSE.new(response.stream)
        Topic.subscribe do |queue|
          sse.write("begun")
          loop { sse.write(queue.pop) }
        end
      ensure
        sse.close
      end
    end
    Rails.application.initialize!
    Rails.application.routes.draw do
      get "stream", to: "streams#stream"
      %w[publish state endings].each { |name| get name, to: "pages#" + name }
      root to: "pages#page"
    end
    run Rails.application
  RUBY
  APPLICATIONS = {"rack" => TOPIC + RACK, "rails" => TOPIC + RAILS}.freeze
  ROUNDS = 20
  REQUESTS = 250 # a round; Puma closes a connection after 999
  AT_ONCE = 200 # connects, below the server's backlog
  SINGLY = 100 # clients that leave alone
  private_constant :TOPIC, :RACK, :RAILS, :APPLICATIONS, :ROUNDS, :REQUESTS, :AT_ONCE, :SINGLY

  def initialize(application, count)
    @text = APPLICATIONS.fetch(application)
    @count = count
    Process.setrlimit(:NOFILE, Process.getrlimit(:NOFILE).last)
  end

  def run
    with_server do |server|
      with_server do |other|
        [server, other].each { |each| latencies(each) } # warm both
        before = memory(server)
        opened = time { open_streams(server) }
        puts "#{@count} streams, opened in #{opened.round(1)} s; subscribers, requests, threads: " \
          "#{server.get("/state").body}"
        puts "memory a stream: #{((memory(server) - before) / 1024.0 / @count).round(1)} KiB"
        compare(server, other)
        puts "an event to all: #{time { publish(server) }.round(2)} s"
        leave(server)
      end
    end
  end

  private

  def with_server(&block)
    PumaProcess.run("log_requests false", fibers: @count + 100, threads: 1,
      files: {"config.ru" => @text}, &block)
  end

  # Bytes.
  def memory(server)
    File.read("/proc/#{server.pid}/smaps_rollup")[/^Rss: +(\d+) kB/, 1].to_i * 1024
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def time
    start = now
    yield
    now - start
  end

  def open_streams(server)
    @sockets = []
    while @sockets.size < @count
      more = Array.new([AT_ONCE, @count - @sockets.size].min) do
        TCPSocket.new("127.0.0.1", server.port).tap do |socket|
          socket.write("GET /stream HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n")
        end
      end
      await("data: begun\n", more)
      @sockets.concat(more)
    end
  end

  def await(event, sockets = @sockets)
    sockets.each do |socket|
      line = socket.gets
      line = socket.gets until line == event
    end
  end

  def publish(server)
    server.get("/publish")
    await("data: more\n")
  end

  # In turns, so that what else the machine does meets both. The CPU time shows what a busy machine hides.
  def compare(server, other)
    times, cpu = {server => [], other => []}, Hash.new(0)
    ROUNDS.times do
      [other, server].each do |each|
        before = cpu_time(each)
        times[each].concat(latencies(each))
        cpu[each] += cpu_time(each) - before
      end
    end
    [0.5, 0.99, 0.999].each do |quantile|
      both = times.values_at(server, other).map { |all| all.sort[(all.size * quantile).to_i] }
      tell_both("p#{(quantile * 100).round(1)}", *both)
    end
    tell_both("CPU time", *cpu.values_at(server, other).map { |all| all / ROUNDS / REQUESTS })
  end

  def tell_both(what, with, without)
    puts format("a page's %<what>s: %<one>.3f ms beside the streams, %<two>.3f ms without: %<ratio>.2f",
      what: what, one: with * 1e3, two: without * 1e3, ratio: with / without)
  end

  # Of a process, in seconds.
  def cpu_time(server)
    File.read("/proc/#{server.pid}/stat").split(") ").last.split.values_at(11, 12).sum(&:to_i) / 100.0
  end

  def latencies(server)
    server.connect do |socket|
      Array.new(REQUESTS) do
        time do
          socket.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
          line = socket.gets until line == "\r\n"
          socket.read(4)
        end
      end
    end
  end

  # Some one after the other, and then all others.
  def leave(server)
    spans = []
    SINGLY.times do |count|
      closed = close(1).first
      sleep(0.02)
      spans << endings(server, count + 1).last - closed
    end
    tell("one leaves", spans)
    closed = close(@sockets.size)
    sleep(0.01) until server.get("/state").body.start_with?("0 1 ")
    ended = endings(server, @count).drop(SINGLY)
    tell("all others leave within #{(closed.last - closed.first).round(2)} s",
      closed.zip(ended).map { |from, to| to - from })
  end

  # @return [Array<Float>] when
  def close(count) = @sockets.shift(count).map { |socket| now.tap { socket.close } }

  # @return [Array<Float>] when streams ended
  def endings(server, count)
    limit = now + Slowness.stretch(10)
    until (ended = server.get("/endings").body.split).size >= count
      abort("#{ended.size} streams have ended, not #{count}") if now > limit
    end
    ended.map(&:to_f).sort
  end

  def tell(what, spans)
    spans.sort!
    puts format("%<what>s: its stream ends after %<median>.4f s (median), %<most>.4f s (most)", what: what,
      median: spans[spans.size / 2], most: spans.last)
  end
end

StreamsSoak.new(ARGV.fetch(0, "rails"), ARGV.fetch(1, "10000").to_i).run if $PROGRAM_NAME == __FILE__
