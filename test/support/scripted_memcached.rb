# frozen_string_literal: true

require "support/memcached_helpers"
require "support/scripted_server"

# A server of memcached whose replies the test writes itself, and tasks that share connections to it.
module ScriptedMemcached
  include MemcachedHelpers

  class Server < ScriptedServer
    Request = Struct.new(:verb, :key, :options, :bytes)

    Peer = Struct.new(:socket, :number) do
      def greet
        return unless socket.gets == "version\r\n"

        socket.write("VERSION 1.6.21\r\n")
      end

      # Returns nil at the end of the connection.
      def request
        line = socket.gets or return
        verb, key, *options = line.split
        bytes = socket.read(Integer(options.shift) + 2)[0..-3] if verb == "ms"
        Request.new(verb, key, options, bytes)
      end

      def requests(count) = Array.new(count) { request }

      def fields(request) = request.options.grep(/\A[fO]/).map { |option| (option == "f") ? "f0" : option }.join(" ")

      # The text of a reply: the key's value is the key, unless told otherwise.
      def reply(request, value = request.key)
        return "HD #{fields(request)}\r\n" unless request.options.include?("v")

        "VA #{value.bytesize} #{fields(request)}\r\n#{value}\r\n"
      end

      def answer(*requests) = socket.write(requests.map { |request| reply(request) }.join)

      def close = socket.close
    end
  end

  # Yields, in a run, a client of the server and the queue of the connections that it has accepted.
  def with_server(**options)
    peers = Thread::Queue.new
    script = lambda do |peer|
      peer.greet
      peers << peer
      sleep
    end
    Server.play(script) do |server|
      cache = client_of("127.0.0.1:#{server.port}", pool: 1, serializer: :string, **options)
      Heddle.run { yield cache, peers }
    end
  end

  def answer
    yield
  rescue => error
    error
  end

  # Tasks that each read a key; their values are the values read, or errors.
  def spawn_gets(cache, *keys) = keys.map { |key| Heddle.spawn { answer { cache.get(key) } } }

  def values(tasks) = tasks.map(&:value)

  # The streams that the client opens from now on.
  def watch_streams(cache)
    streams = []
    server_of(cache).define_singleton_method(:connect) { |*limit| super(*limit).tap { |stream| streams << stream } }
    streams
  end

  def server_of(cache) = cache.instance_variable_get(:@servers).first

  def count_failures(cache)
    failures = []
    server_of(cache).define_singleton_method(:failed) do |error|
      failures << error
      super(error)
    end
    failures
  end

  def leave(tasks, left)
    tasks[left].cancel
    wait_until(what: "the task's end") { tasks[left].ended? }
  end
end
