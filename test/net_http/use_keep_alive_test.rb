# frozen_string_literal: true

require "test_helper"
require "etc"
require "fileutils"
require "open-uri"
require "tmpdir"
require "support/aws_beside_others"
require "support/certificates"
require "support/keeping_server"
require "support/loop_helpers"
require "support/servers"
require "heddle/net_http"
require "heddle"

runs_on rubies: :ends, except: %i[portable newest_net_http]

# Programs and libraries that make a session for each request, with persistent connections: real servers count
# connections.
class UseKeepAliveTest < Minitest::Test
  include LoopHelpers

  hard_deadline 120
  mode :thread

  OK = KeepingServer::OK

  def setup
    Heddle::NetHTTP.enable
    Heddle::NetHTTP.keep_alive
    @before = Heddle::NetHTTP.stats
  end

  def teardown
    Heddle::NetHTTP.keep_alive(false)
    @server&.close
    return unless @nginx

    Process.kill(:QUIT, @nginx)
    reap(@nginx, 10)
  ensure
    FileUtils.rm_rf(@folder) if @folder
  end

  def test_open_uri
    3.times { assert_equal "ok", URI(url).open(&:read) }
    assert_equal 2, reused
    assert_equal [1] * 3, @server.connections
  end

  def test_faraday
    require "faraday"
    require "faraday/net_http"
    connection = Faraday.new(url) { |builder| builder.adapter :net_http }
    3.times { assert_equal "ok", connection.get("/").body }
    assert_equal "ok", connection.post("/", "a=b").body
    assert_equal 3, reused
  end

  def test_rest_client
    require "rest-client"
    3.times { assert_equal "ok", RestClient.get(url).body }
    assert_equal 2, reused
    2.times { assert_equal "ok", RestClient.post(url, {"a" => "b"}).body } # a stream of its own kind
    2.times { File.open(__FILE__) { |file| RestClient.post(url, {"file" => file}) } }
    assert_equal 6, reused
  end

  def test_httparty
    require "httparty"
    3.times { assert_equal "ok", HTTParty.get(url).body }
    assert_equal 2, reused
  end

  # Libraries that make a store of certificates for each connection, and others.
  {
    net_http_start: lambda do |address, file|
      Net::HTTP.start(address.host, address.port, use_ssl: true, ca_file: file) { |http| http.get("/").body }
    end,
    open_uri: ->(address, file) { address.open(ssl_ca_cert: file, &:read) },
    open_uri_and_the_system: ->(address, _) { with_authorities_of_the_system { address.open(&:read) } },
    rest_client: lambda do |address, file|
      require "rest-client"
      RestClient::Request.execute(method: :get, url: address.to_s, ssl_ca_file: file).body
    end,
    rest_client_and_the_system: lambda do |address, _|
      require "rest-client"
      with_authorities_of_the_system { RestClient.get(address.to_s).body }
    end,
    faraday: lambda do |address, file|
      require "faraday"
      require "faraday/net_http"
      Faraday.new(address.to_s, ssl: {ca_file: file}) { |builder| builder.adapter :net_http }.get("/").body
    end,
    faraday_and_the_system: lambda do |address, _|
      require "faraday"
      require "faraday/net_http"
      with_authorities_of_the_system do
        Faraday.new(address.to_s) { |builder| builder.adapter :net_http }.get("/").body
      end
    end,
    httparty: lambda do |address, file|
      require "httparty"
      HTTParty.get(address.to_s, ssl_ca_file: file).body
    end
  }.each do |name, get|
    define_method("test_tls_by_#{name}") do
      @server = KeepingServer.new(context: Certificates.context)
      address = URI("https://localhost:#{@server.port}/")
      3.times { assert_equal "ok", instance_exec(address, Certificates.authority_file, &get) }
      assert_equal 2, reused
      assert_equal [1] * 3, @server.connections
    end
  end

  # aws-sdk has a pool of its own: what the pool gives up, others take.
  def test_aws_sdk_s3
    require "aws-sdk-s3"
    server = Servers.s3
    client = Aws::S3::Client.new(endpoint: "http://127.0.0.1:#{server.port}", region: "us-east-1",
      force_path_style: true, retry_limit: 0, access_key_id: server.access_key,
      secret_access_key: server.secret_key)
    2.times do |i|
      client.put_object(bucket: server.bucket, key: "key", body: "body #{i}")
      assert_equal "body #{i}", client.get_object(bucket: server.bucket, key: "key").body.read
      Seahorse::Client::NetHttp::ConnectionPool.pools.each(&:empty!)
    end
    assert_operator reused, :>=, 1
  end

  # Read to the end it may be kept; left in the middle it may not.
  def test_a_stream_of_events
    event = "data: {\"delta\":\"word\"}\n\n"
    chunk = "#{event.bytesize.to_s(16)}\r\n#{event}\r\n"
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    url { |request| (request.path == "/stream") ? [head, *[chunk, 0.005] * 5, "0\r\n\r\n"] : OK }
    read = lambda do |most|
      seen = 0
      Net::HTTP.start("127.0.0.1", @server.port) do |http|
        http.request(Net::HTTP::Post.new("/stream")) do |response|
          response.read_body { |piece| break if (seen += piece.scan("data:").size) >= most }
          return seen if most < 5
        end
      end
      seen
    end
    assert_equal 5, read.call(100)
    2.times { Net::HTTP.get(URI(url)) }
    stream_until(read)
    Net::HTTP.get(URI(url))
    assert_equal [1, 1, 1, 1, 2], @server.connections
  end

  def test_the_client_of_rubygems
    out = gem_child(<<~RUBY)
      require "rubygems/remote_fetcher"
      require "rubygems/request"
      require "rubygems/request_set"
      klass = defined?(Gem::Net::HTTP) ? Gem::Net::HTTP : Net::HTTP
      require "heddle/net_http"
      Heddle::NetHTTP.enable(klass)
      Heddle::NetHTTP.keep_alive
      3.times do
        fetcher = Gem::RemoteFetcher.new
        print fetcher.fetch_path(ARGV.fetch(0))
        fetcher.close_all
      end
      print " ", Heddle::NetHTTP.stats[:reused]
    RUBY
    assert_equal "okokok 2", out
  end

  # It makes sessions that live long: they take what others leave, and nobody takes theirs.
  def test_net_http_persistent
    require "net/http/persistent"
    address = URI(url)
    Net::HTTP.get(address)
    http = Net::HTTP::Persistent.new(name: "kept")
    3.times { assert_equal "ok", http.request(address).body }
    Net::HTTP.get(address)
    http.shutdown
    assert_equal [1], @server.connections.first(1)
    assert_operator @server.connections.uniq.size, :<=, 2
  end

  def test_httplog_before_and_after
    url
    ["require 'httplog'; require 'heddle/net_http'", "require 'heddle/net_http'; require 'httplog'"].each do |order|
      out = gem_child(<<~RUBY)
        require "benchmark"
        require "net/http"
        require "stringio"
        require "logger"
        #{order}
        HttpLog.configure { |config| config.logger = Logger.new(LOG = StringIO.new) }
        Heddle::NetHTTP.keep_alive
        3.times { print Net::HTTP.get(URI(ARGV.fetch(0))) }
        print " ", Heddle::NetHTTP.stats[:reused], " ", LOG.string.scan("Sending: GET").size
      RUBY
      assert_equal "okokok 2 3", out
    end
  end

  def test_webmock_and_vcr
    out = gem_child(<<~RUBY)
      require "heddle/net_http"
      Heddle::NetHTTP.keep_alive
      require "webmock"
      require "vcr"
      require "tmpdir"
      WebMock.enable!
      WebMock.allow_net_connect!
      address = URI(ARGV.fetch(0))
      3.times { print Net::HTTP.get(address) }
      print " ", Heddle::NetHTTP.stats[:reused], " "
      WebMock.stub_request(:get, address.to_s).to_return(body: "stub")
      2.times { print Net::HTTP.get(address) }
      WebMock.reset!
      Dir.mktmpdir do |folder|
        VCR.configure { |vcr| vcr.cassette_library_dir = folder; vcr.hook_into :webmock; vcr.ignore_localhost = false }
        2.times { VCR.use_cassette("one") { print Net::HTTP.get(address) } }
      end
      WebMock.disable!
      print Net::HTTP.get(address)
    RUBY
    assert_match(/\Aokokok \d stubstubokokok\z/, out)
  end

  # --- nginx

  def test_nginx_with_a_limit_of_requests
    port = nginx("keepalive_requests 7;")
    30.times { assert_equal "done", Net::HTTP.start("127.0.0.1", port) { |http| http.get("/").body } }
    assert_equal [5, 25], counts
  end

  def test_nginx_with_a_limit_of_time
    port = nginx("keepalive_timeout 1;")
    get = -> { Net::HTTP.start("127.0.0.1", port) { |http| http.get("/").body } }
    2.times { assert_equal "done", get.call }
    sleep 1.3 # nginx has closed
    assert_equal "done", get.call
    assert_equal [2, 1], counts
    assert_equal 1, Heddle::NetHTTP.stats[:stale] - @before[:stale]
  end

  def test_nginx_that_is_reloaded_under_load
    port = nginx("")
    stop = false
    threads = Array.new(4) do
      Thread.new do
        done = 0
        until stop
          Net::HTTP.start("127.0.0.1", port) { |http| raise "wrong" unless http.get("/").body == "done" }
          done += 1
        end
        done
      end
    end
    5.times do
      sleep 0.1
      Process.kill(:HUP, @nginx)
    end
    stop = true
    assert_operator threads.sum(&:value), :>, 100
    assert_operator reused, :>, 50
  end

  def test_nginx_that_asks_for_certificates
    port = nginx("", tls: true)
    get = lambda do |pair|
      http = Net::HTTP.new("localhost", port, nil)
      http.use_ssl = true
      http.ca_file = Certificates.authority_file
      http.cert, http.key = pair
      http.start { http.get("/who").body }
    end
    me, you = Certificates.client("me"), Certificates.client("you")
    answers = [me, you, me, nil, you].map { |pair| get.call(pair) }
    assert_equal ["CN=me", "CN=you", "CN=me", "", "CN=you"], answers
    assert_equal [3, 2], counts
  end

  private

  def url(&answer)
    @server ||= KeepingServer.new(&answer)
    "http://127.0.0.1:#{@server.port}/"
  end

  def reused = Heddle::NetHTTP.stats[:reused] - @before[:reused]

  # As an administrator sets them.
  def with_authorities_of_the_system
    name = OpenSSL::X509::DEFAULT_CERT_FILE_ENV
    before, ENV[name] = ENV[name], Certificates.authority_file
    yield
  ensure
    ENV[name] = before
  end

  def counts = Heddle::NetHTTP.stats.then { |now| %i[opened reused].map { |name| now[name] - @before[name] } }

  # From a method, so that `return` leaves the session in the middle.
  def stream_until(read) = read.call(2)

  # With the gems of this process.
  def gem_child(code)
    folders = ["#{ROOT}/lib", *$LOAD_PATH].map { |folder| "-I#{folder}" }
    out = IO.popen([RbConfig.ruby, "-W0", *folders, "-e", code, url], err: [:child, :out], &:read)
    assert_predicate $?, :success?, out
    out
  end

  def nginx(settings, tls: false)
    program = ["/usr/sbin/nginx", "/usr/bin/nginx"].find { |path| File.executable?(path) }
    flunk "nginx is not installed: bin/setup --all" unless program

    @folder = Dir.mktmpdir("heddle-nginx")
    port = Addrinfo.tcp("127.0.0.1", 0).bind { |socket| socket.local_address.ip_port }
    File.write("#{@folder}/nginx.conf", <<~CONF)
      daemon off;
      user #{Etc.getpwuid.name};
      worker_processes 1;
      pid #{@folder}/pid;
      error_log #{@folder}/errors;
      events { worker_connections 256; }
      http {
        access_log off;
        client_body_temp_path #{@folder}/body;
        proxy_temp_path #{@folder}/proxy;
        fastcgi_temp_path #{@folder}/fastcgi;
        uwsgi_temp_path #{@folder}/uwsgi;
        scgi_temp_path #{@folder}/scgi;
        #{settings}
        server {
          listen 127.0.0.1:#{port}#{" ssl" if tls};
          #{tls_settings if tls}
          location / { return 200 "done"; }
          location /who { return 200 "$ssl_client_s_dn"; }
        }
      }
    CONF
    @nginx = Process.spawn(program, "-p", @folder, "-c", "#{@folder}/nginx.conf", err: File::NULL)
    wait_until(what: "nginx") { reachable?(port) }
    port
  end

  def tls_settings
    certificate, key = Certificates.server
    File.write("#{@folder}/certificate.pem", certificate.to_pem)
    File.write("#{@folder}/key.pem", key.to_pem)
    "ssl_certificate #{@folder}/certificate.pem; ssl_certificate_key #{@folder}/key.pem; " \
      "ssl_client_certificate #{Certificates.authority_file}; ssl_verify_client optional;"
  end

  def reachable?(port)
    TCPSocket.new("127.0.0.1", port).close
    true
  rescue SystemCallError
    false
  end
end
