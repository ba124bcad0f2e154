# frozen_string_literal: true

require "test_helper"
require "json"
require "open3"
require "openssl"
require "socket"
require "heddle/lab"

runs_on short: false

# Every client that `heddle bench http` measures does what it is told, whichever library it is.
class HTTPClientsTest < Minitest::Test
  SIZE = 3 * 1024 * 1024 + 12_345
  Tests = Heddle::Lab::Bench::HTTP::Tests

  # What a client of the bench does, in a separate process: its libraries must not affect others, and the custom ones
  # change Net::HTTP.
  SCRIPT = <<~'RUBY'
    require "json"
    require "heddle/lab/workload/http"
    Client = Heddle::Lab::Workload::HTTP::Client
    kind, plain, tls, ca, size, directory, wanted = JSON.parse(ARGV.fetch(0))
    begin
      Client.load(kind)
      versions = Client.fetch(kind).versions
    rescue LoadError => error
      puts JSON.generate("missing" => error.message)
      exit
    end
    client = ->(base, path, gzip = false) {
      Client.fetch(kind).new(URI("#{base}#{path}"), ca_file: (ca if base == tls), gzip: gzip)
    }
    digest = ->(bytes) { [bytes.bytesize, Zlib.crc32(bytes)] }
    body = File.join(directory, "body")
    results = wanted.to_h do |name, params|
      base = (params["shape"] == "tls") ? tls : plain
      fetched = client.call(base, "#{params["path"]}#{size}", params["shape"] == "gzip")
      result =
        case params.transform_keys(&:to_sym)
        in {to: "block"}
          whole = +"".b
          fetched.each_chunk { |chunk| whole << chunk }
          tally = Client::Tally.new
          fetched.block(tally)
          [digest.call(whole), tally.to_h]
        in {to: "string"} then digest.call(fetched.string)
        in {to: "file"}
          File.delete(body) if File.exist?(body)
          fetched.file(body)
          digest.call(File.binread(body))
        in {from: "file"} then client.call(plain, "/u").upload_file(File.join(directory, "original")).strip
        in {from: "string"}
          client.call(plain, "/u").upload_string(File.binread(File.join(directory, "original"))).strip
        in {small:}
          bodies = []
          client.call(plain, "/0").small(small) { |answer| (bodies << answer).size < 5 }
          bodies
        end
      [name, result]
    end
    puts JSON.generate("versions" => versions, "results" => results)
  RUBY

  def self.servers
    @servers ||= begin
      plain = Heddle::Lab::LoadServer.start
      tls = Heddle::Lab::TLSServer.start(plain)
      directory = Dir.mktmpdir("heddle-clients")
      original = Heddle::Lab::LoadServer.body(SIZE)
      File.binwrite(File.join(directory, "original"), original)
      Minitest.after_run { [tls, plain].each(&:stop).then { FileUtils.rm_rf(directory) } }
      {plain: plain, tls: tls, directory: directory, digest: [SIZE, Zlib.crc32(original)]}
    end
  end

  # What all implementations that need no gem can do everywhere; the others may be missing, and say why.
  BUILT_IN = %w[stock custom-16kbuffer custom-16kbuffer-notimeout custom-16kbuffer-select
    custom-16kbuffer-selectwithsysread custom-64kbuffer-notimeout custom-64kbuffer-select raw].freeze

  (Heddle::Lab::Bench::HTTP::IMPLEMENTATIONS - ["heddle"]).each do |kind|
    define_method("test_#{kind}") do
      tests = every_test.select { |test| test.for?(kind) }
      answer = ask(kind, tests)
      if answer["missing"]
        refute_includes BUILT_IN, kind, answer["missing"]
        assert_match(/is not installed/, answer["missing"])
        skip answer["missing"]
      end
      tests.each { |test| assert_right(test, answer["results"].fetch(test.name), kind) }
      refute_empty answer["versions"].join
    end
  end

  def test_custom_clients_read_as_much_as_their_names_say
    block = every_test.select { |test| test.params.values_at("shape", "to") == %w[length block] }
    %w[stock custom-16kbuffer-select].each do |kind|
      assert_operator ask(kind, block)["results"].values.first.last["largest_chunk"], :<=, 16_384
    end
    assert_operator ask("custom-64kbuffer-select", block)["results"].values.first.last["largest_chunk"], :>, 16_384
  end

  def test_no_client_trusts_an_unknown_certificate
    servers = self.class.servers
    socket = TCPSocket.new(servers[:tls].host, servers[:tls].port)
    context = OpenSSL::SSL::SSLContext.new.tap(&:set_params)
    assert_raises(OpenSSL::SSL::SSLError) { OpenSSL::SSL::SSLSocket.new(socket, context).connect }
    socket.close
  end

  def test_the_tls_server_keeps_its_connections_apart
    reader, writer = IO.pipe
    clients = Array.new(3) do
      fork do
        failed_handshakes(200).each { |message| writer.puts(message) }
        exit!(0)
      end
    end
    writer.close
    assert_empty reader.read
    clients.each { |pid| assert_predicate Process.wait2(pid).last, :success? }
  end

  def test_the_tls_server_ends_with_its_parent
    reader, writer = IO.pipe
    parent = fork do
      server = Heddle::Lab::TLSServer.start(self.class.servers[:plain])
      writer.puts(server.port)
      sleep
    end
    port = reader.gets.to_i
    TCPSocket.new("127.0.0.1", port).close
    Process.kill(:KILL, parent)
    Process.wait(parent)
    wait_until(what: "the end of the server") { !listening?(port) }
  end

  private

  # Messages of the handshakes that failed, of +count+ new connections one after another. The request is in two pieces,
  # so that the server may answer and end before the second.
  def failed_handshakes(count)
    servers = self.class.servers
    context = OpenSSL::SSL::SSLContext.new.tap { |made| made.ca_file = servers[:tls].ca_file }
    Array.new(count) do
      socket = TCPSocket.new(servers[:tls].host, servers[:tls].port)
      client = OpenSSL::SSL::SSLSocket.new(socket, context).connect
      ["GET /0 HTTP/1.0\r\n\r\n", "more"].each { |piece| client.write(piece) }
      client.read
      nil
    rescue OpenSSL::SSL::SSLError => error
      error.message if error.message.include?("SSL_connect")
    rescue SystemCallError
      nil # the server had closed before the second piece
    ensure
      socket&.close
    end.compact
  end

  def listening?(port)
    TCPSocket.new("127.0.0.1", port).close
    true
  rescue Errno::ECONNREFUSED
    false
  end

  def every_test
    Tests.new.tap do |tests|
      OptionParser.new { |parser| tests.define_options(parser) }
        .parse(%w[
          --shapes length,chunked,gzip,tls --dest block,string,file --upload string,file --small keep-alive,start,option
        ])
    end.to_a
  end

  def ask(kind, tests)
    servers = self.class.servers
    plain, tls = servers.values_at(:plain, :tls)
    Dir.mktmpdir do |directory|
      File.symlink(File.join(servers[:directory], "original"), File.join(directory, "original"))
      spec = [kind, "http://127.0.0.1:#{plain.port}", "https://127.0.0.1:#{tls.port}", tls.ca_file, SIZE, directory,
        tests.to_h { |test| [test.name, test.params] }]
      paths = %w[lab/lib lib].flat_map { |path| ["-I", File.expand_path("../../#{path}", __dir__)] }
      out, err, = Open3.capture3(RbConfig.ruby, *paths, "-e", SCRIPT, JSON.generate(spec))
      JSON.parse(out)
    rescue JSON::ParserError
      flunk "#{kind}: #{err}"
    end
  end

  def assert_right(test, result, kind)
    case test.params["what"]
    when "download"
      digest, tally = (test.params["to"] == "block") ? result : [result, nil]
      assert_equal self.class.servers[:digest], digest, test.name
      assert_equal SIZE, tally["bytes"], test.name if tally
      assert_operator tally["smallest_chunk"], :<=, tally["largest_chunk"] if tally && kind != "curl"
    when "upload" then assert_equal %({"bytes":#{SIZE},"right":true}), result, test.name
    else assert_equal ["done"] * 5, result, test.name
    end
  end
end
