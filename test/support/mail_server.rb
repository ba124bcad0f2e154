# frozen_string_literal: true

require_relative "certificates"
require_relative "slowness"

# Speaks SMTP (RFC 5321), with STARTTLS (RFC 3207): for LoopHelpers#with_server. Keeps the mails that come by TLS.
class MailServer
  PATIENCE = 20 # seconds
  # @!attribute to [String] the address
  # @!attribute text [String]
  Mail = Struct.new(:to, :text)

  attr_reader :received

  # @param together [Integer] so many clients must be about to send a mail before the first one may
  def initialize(together: 1)
    @together = together
    @about_to_send = 0
    @received = []
    @lock = Thread::Mutex.new
    @change = Thread::ConditionVariable.new
  end

  # @param client [TCPSocket]
  def call(client)
    client.write("220 ready\r\n")
    to = secure = nil
    while (line = client.gets("\r\n"))
      case line
      when /\AEHLO / then client.write("250-fine\r\n250 STARTTLS\r\n")
      when /\ASTARTTLS/
        client.write("220 ready\r\n")
        client = secure = OpenSSL::SSL::SSLSocket.new(client, Certificates.context).accept
      when /\AMAIL FROM:/ then client.write(secure ? "250 fine\r\n" : "530 STARTTLS first\r\n")
      when /\ARCPT TO:<(.*)>/
        to = $1
        client.write("250 known\r\n")
      when /\ADATA/
        gather
        client.write("354 go on\r\n")
        text = client.gets("\r\n.\r\n").delete_suffix(".\r\n")
        @lock.synchronize { @received << Mail.new(to, text) }
        client.write("250 taken\r\n")
      when /\AQUIT/
        return client.write("221 bye\r\n")
      else client.write("502 unknown\r\n")
      end
    end
  end

  private

  def gather
    @lock.synchronize do
      @about_to_send += 1
      @change.broadcast
      deadline = Heddle::Clock.now + Slowness.stretch(PATIENCE)
      @change.wait(@lock, 1) until @about_to_send >= @together || Heddle::Clock.now > deadline
    end
  end
end
