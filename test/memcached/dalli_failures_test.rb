# frozen_string_literal: true

require "test_helper"
require "support/memcached_helpers"

# What a program written for dalli rescues, passes and traces, compared with a real dalli.
class MemcachedDalliFailuresTest < Minitest::Test
  include MemcachedHelpers

  hard_deadline 60

  def setup
    super
    require_dalli
  end

  def both(servers, **options)
    [Dalli::Client.new(servers, {protocol: :meta, **options}), Heddle::Memcached::DalliCompatible.new(servers, options)]
  end

  def of_real_server(**options)
    server = real_server
    # no keys in common
    Array.new(2) { |i| both("#{server.host}:#{server.port}", namespace: "#{name}#{rand(1 << 30)}", **options)[i] }
  end

  def outcome
    yield
  rescue => error
    error.class
  end

  # Answers every request by one line, except those without a key.
  def with_answer(answer)
    listener = TCPServer.new("127.0.0.1", 0)
    threads = [Thread.new { accept(listener, answer, threads) }]
    yield "127.0.0.1:#{listener.addr[1]}"
  ensure
    listener&.close
    threads&.each { |thread| thread.kill.join }
  end

  def accept(listener, answer, threads)
    while (socket = listener.accept)
      threads << Thread.new(socket) do |peer|
        while (line = peer.gets)
          peer.write({"version\r\n" => "VERSION 1.6.18\r\n", "mn\r\n" => "MN\r\n"}.fetch(line, answer))
        end
      rescue IOError, SystemCallError
        nil
      ensure
        peer.close
      end
    end
  rescue IOError, SystemCallError
    nil
  end

  # A server whose certificate is refused, and one that does not speak TLS.
  def test_failures_of_tls
    context = OpenSSL::SSL::SSLContext.new.tap { |one| one.set_params(ca_file: Certificates.authority_file) }
    stranger = TCPServer.new("127.0.0.1", 0)
    thread = Thread.new do
      loop { Thread.new(stranger.accept) { |peer| peer.readpartial(100) && peer.write("ERROR\r\n") && peer.close } }
    end
    [real_server.then { |server| "#{server.host}:#{server.port}" }, "127.0.0.1:#{stranger.addr[1]}"].each do |address|
      {get: ->(cache) { cache.get("k") }, set: ->(cache) { cache.set("k", 1) }, delete: ->(cache) { cache.delete("k") },
       get_multi: ->(cache) { cache.get_multi("a", "b") }, stats: ->(cache) { cache.stats.values }}.each do |name, call|
        caches = both(address, ssl_context: context, socket_timeout: 1)
        theirs, ours = caches.map { |cache| outcome { call.call(cache) } }
        assert_equal theirs, ours, name
      end
    end
  ensure
    thread&.kill
    stranger&.close
  end

  ONE_KEY = {get: ->(cache) { cache.get("k") }, set: ->(cache) { cache.set("k", 1) },
             add: ->(cache) { cache.add("k", 1) },
             incr: ->(cache) { cache.incr("k") }, fetch: ->(cache) { cache.fetch("k") { 1 } },
             get_cas: ->(cache) { cache.get_cas("k") },
             quiet: ->(cache) { cache.quiet { cache.set("k", 1) } }, alive: ->(cache) { cache.alive! }}.freeze
  MANY_KEYS = {
    get_multi: [->(cache) { cache.get_multi("k", "l") }, {}],
    set_multi: [->(cache) { cache.set_multi({"k" => 1}) }, nil]
  }.freeze

  # Servers that refuse connections, and one that accepts and never answers.
  def test_no_server_is_left
    silent = TCPServer.new("127.0.0.1", 0)
    [["127.0.0.1:#{Servers.free_port}"], ["127.0.0.1:#{Servers.free_port}", "127.0.0.1:#{Servers.free_port}"],
      ["127.0.0.1:#{silent.addr[1]}"]].each do |servers|
      ONE_KEY.each do |name, operation|
        2.times do # also before the breaker has opened
          ours = Heddle::Memcached::DalliCompatible.new(servers, socket_timeout: 0.1)
          2.times do
            assert_match(/No server available|no server answers/,
              assert_raises(Dalli::RingError, name) { operation.call(ours) }.message)
          end
        end
      end
      MANY_KEYS.each do |name, (operation, nothing)|
        ours = Heddle::Memcached::DalliCompatible.new(servers, socket_timeout: 0.1)
        assert_equal [name, nothing, nothing], [name, operation.call(ours), operation.call(ours)]
      end
    end
    assert_raises(Dalli::RingError) { Dalli::Client.new("127.0.0.1:#{Servers.free_port}", protocol: :meta).get("k") }
  ensure
    silent&.close
  end

  def test_a_server_that_answers_server_error
    with_answer("SERVER_ERROR out of memory\r\n") do |address|
      %i[get add incr fetch get_cas].each do |name|
        error = assert_raises(Dalli::ServerError, name) {
          ONE_KEY[name].call(Heddle::Memcached::DalliCompatible.new(address))
        }
        theirs = assert_raises(Dalli::ServerError) { ONE_KEY[name].call(Dalli::Client.new(address, protocol: :meta)) }
        assert_equal theirs.message, error.message
        assert_includes error.cause.message, address # dalli does not name the server
      end
      assert_raises(Dalli::ServerError) { Heddle::Memcached::DalliCompatible.new(address).stats }
    end
  end

  # doc/limits.md says so.
  def test_intended_differences_from_dalli
    {"NONSENSE\r\n" => {}, "SERVER_ERROR out of memory\r\n" => Dalli::ServerError}.each do |answer, expected|
      with_answer(answer) do |address|
        assert_equal [{}, expected], both(address).map { |cache| outcome { cache.get_multi("k", "l") } }
      end
    end
    assert_equal Dalli::RingError, outcome { Dalli::Client.new([], protocol: :meta).get("k") }
    assert_equal ArgumentError, outcome { Heddle::Memcached::DalliCompatible.new([]) }
    theirs, ours = of_real_server.map { |cache| assert_raises(ArgumentError) { cache.get("") }.message }
    refute_equal theirs, ours
  end

  def test_options
    address = "127.0.0.1:#{Servers.free_port}"
    Heddle::Memcached::DalliCompatible.new(address,
      socket_failure_delay: 0.01, otel_db_statement: :include, otel_peer_service: "cache")
    ["soon", :soon, Object.new, Float::NAN].each do |bad|
      assert_raises(ArgumentError, bad.inspect) { Heddle::Memcached::DalliCompatible.new(address, expires_in: bad) }
    end
    ["10", 10, 1.9].each { |good| Heddle::Memcached::DalliCompatible.new(address, expires_in: good) }
  end

  def test_not_found_and_stored_nil_as_in_dalli
    [{}, {cache_nils: true}].each do |options|
      theirs, ours = of_real_server(**options).map do |cache|
        cache.set("nil", nil)
        [cache.not_found?(nil), cache.not_found?(Dalli::NOT_FOUND), cache.not_found?(1), cache.cache_nils,
          cache.get("none", cache_nils: true), cache.get("nil", cache_nils: true), cache.get("none"),
          cache.fetch("nil") { 5 }, cache.fetch("new") { nil }, cache.fetch("new") { 6 },
          (cache.cas("nil") { 1 }.class if Dalli::VERSION.to_i >= 5)]
      end
      assert_equal theirs, ours
    end
  end

  # A value that is too large or cannot be stored does not keep the others back.
  def test_set_multi_with_some_values_that_cannot_be_stored
    cache = of_real_server.last
    assert_raises(Dalli::ValueOverMaxSize) { cache.set_multi({"big" => Random.bytes(2 << 20), "a" => 1}) }
    assert_raises(Dalli::MarshalError) { cache.set_multi({"proc" => proc {}, "b" => 2}) }
    assert_raises(Dalli::ValueOverMaxSize) { cache.quiet { cache.set("big", Random.bytes(2 << 20)) } }
    assert_equal({"a" => 1, "b" => 2}, cache.get_multi("a", "b", "big", "proc"))
    assert_equal false, cache.set_cas("none", 1, 5)
    assert_equal false, cache.replace_cas("none", 1, 5)
    assert_equal({}, cache.get_multi { flunk })
  end

  # With OpenTelemetry's own tracer, for as long as the block runs.
  #
  # @yieldparam spans [OpenTelemetry::SDK::Trace::Export::InMemorySpanExporter]
  def with_telemetry
    require "opentelemetry/sdk"
    exporter = OpenTelemetry::SDK::Trace::Export::InMemorySpanExporter.new
    provider = OpenTelemetry::SDK::Trace::TracerProvider.new
    provider.add_span_processor(OpenTelemetry::SDK::Trace::Export::SimpleSpanProcessor.new(exporter))
    before = OpenTelemetry.tracer_provider
    OpenTelemetry.tracer_provider = provider
    Dalli::Instrumentation.instance_variable_set(:@tracer, provider.tracer("dalli", Dalli::VERSION))
    yield exporter
  ensure
    OpenTelemetry.tracer_provider = before if before
    Dalli::Instrumentation.instance_variable_set(:@tracer, nil)
  end

  def described(span)
    attributes = span.attributes
      .transform_values { |value| value.is_a?(String) ? value.gsub(/#{name}\d+:/, "") : value }
    [span.name, attributes, span.kind, span.status.code, span.instrumentation_scope.name, span.events&.map(&:name)]
  end

  def test_the_same_telemetry_spans
    skip "this is dalli #{Dalli::VERSION}, whose spans have older attributes" if Dalli::VERSION.to_i < 5

    with_telemetry do |exporter|
      [{}, {otel_db_statement: :include, otel_peer_service: "peer"}, {otel_db_statement: :obfuscate}].each do |options|
        theirs, ours = of_real_server(**options).map do |cache|
          exporter.reset
          cache.set("k", 1) && cache.get("k") && cache.gat("k", 5) && cache.touch("k", 5)
          cache.add("k", 1) || cache.replace("k", 2)
          cache.append("none", "1") || cache.prepend("none", "1")
          cache.get_cas("k") { |_, cas| cache.set_cas("k", 1, cas) }
          cache.incr("n", 1, 0, 1) && cache.decr("n")
          cache.fetch("f") { 1 }
          cache.cas("f") { 2 }
          cache.get_multi("f", "none", "k")
          cache.get_multi("f", "none") { |key, value| [key, value] }
          cache.set_multi({"a" => 1, "b" => 2})
          cache.get_with_metadata("a")
          cache.delete_multi(%w[a b])
          cache.delete("k")
          outcome { cache.set("big", Random.bytes(2 << 20)) }
          outcome { cache.incr("f") }
          assert_predicate exporter.finished_spans.size, :positive?
          exporter.finished_spans.map { |span| described(span) }
        end
        theirs.zip(ours).each { |pair| assert_equal(*pair) }
        assert_equal theirs.size, ours.size
      end
    end
  end
end
