# frozen_string_literal: true

require "support/servers"
require "support/stream_helpers"

# A MariaDB of a test file's own, which speaks TLS too, and whose global settings the tests may change.
class TestMariaDB < Servers::MariaDB
  # @return [TestMariaDB] the one of this process
  def self.shared
    @shared ||= new.start.tap do |server|
      owner = Process.pid
      at_exit { server.stop if Process.pid == owner }
    end
  end

  # @param options [Array<String>] further ones of the program's
  def initialize(*options)
    @options = options
  end

  def ca_file
    StreamHelpers::Certificates.authority_file
  end

  private

  def prepare
    super
    certificate, key = StreamHelpers::Certificates.server
    File.write("#{dir}/cert.pem", certificate.to_pem)
    File.write("#{dir}/key.pem", key.to_pem)
  end

  def command
    super + ["--ssl-cert=#{dir}/cert.pem", "--ssl-key=#{dir}/key.pem", "--ssl-ca=#{ca_file}", *@options]
  end
end

# For tests that need one.
module MariaDBHelpers
  # @return [TestMariaDB] this process' own; where none can be started the test is skipped, with the reason
  def mariadb
    TestMariaDB.shared
  rescue Servers::Unavailable => error
    skip error.message
  end
end
