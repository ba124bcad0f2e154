# frozen_string_literal: true

# The process of a TLSServer:
#
#   tls_server_main.rb --bind ADDRESS --port PORT --exit-with-parent UPSTREAM CA_FILE
#
# Two threads for each connection pass bytes on in large pieces. The process ends when its standard input does.
require "openssl"
require "socket"

PIECE = 1 << 18

bind, port, upstream_address, ca_file = ARGV.values_at(1, 3, 5, 6)
host, upstream_port = upstream_address.split(":")

key = OpenSSL::PKey::EC.generate("prime256v1")
certificate = OpenSSL::X509::Certificate.new
certificate.version = 2
certificate.serial = 1
certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=heddle-lab")
certificate.public_key = key
certificate.not_before = Time.now - 3600
certificate.not_after = Time.now + 86_400
extensions = OpenSSL::X509::ExtensionFactory.new(certificate, certificate)
certificate.add_extension(extensions.create_extension("basicConstraints", "CA:TRUE", true))
certificate.add_extension(extensions.create_extension("subjectAltName", "IP:#{bind},DNS:localhost"))
certificate.sign(key, OpenSSL::Digest.new("SHA256"))
File.write(ca_file, certificate.to_pem)

context = OpenSSL::SSL::SSLContext.new
context.add_certificate(certificate, key)

carry = lambda do |from, to|
  buffer = String.new(capacity: PIECE)
  loop { to.write(from.readpartial(PIECE, buffer)) }
rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
  nil # an end of the connection, or an error that follows from it
end

serve = lambda do |socket|
  upstream = TCPSocket.new(host, upstream_port)
  [socket, upstream].each { |one| one.setsockopt(:TCP, :NODELAY, 1) }
  client = OpenSSL::SSL::SSLSocket.new(socket, context)
  client.accept
  back = Thread.new do
    carry.call(upstream, client)
    client.stop # announces the end; without that, clients report an error
  rescue OpenSSL::SSL::SSLError, IOError, SystemCallError
    nil
  ensure
    # Wakes the other thread. A close would free the descriptor's number, and OpenSSL reads and writes by the number:
    # the other thread could then read what the next client sends.
    begin
      socket.shutdown
    rescue SystemCallError
      nil # the client has reset the connection
    end
  end
  carry.call(client, upstream)
  upstream.close_write
  back.join
rescue OpenSSL::SSL::SSLError, SystemCallError, IOError
  nil # the client rejects the certificate, or is gone
ensure
  upstream&.close
  back&.join
  socket.close
end

server = TCPServer.new(bind, Integer(port))
trap(:TERM) { exit!(0) }
Thread.new do
  $stdin.read
  exit!(0)
end
puts "listening on #{bind}:#{server.addr[1]}"
$stdout.flush
loop { Thread.new(server.accept, &serve) }
