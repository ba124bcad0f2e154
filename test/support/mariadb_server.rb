# frozen_string_literal: true

require "support/servers"
require "support/stream_helpers"

# A MariaDB server of a test file's own. It speaks TLS, and tests may change its global settings.
class TestMariaDB < Servers::MariaDB
  # @return [TestMariaDB] the server of this process
  def self.shared
    @shared ||= new.start.tap do |server|
      owner = Process.pid
      at_exit { server.stop if Process.pid == owner }
    end
  end

  # @param options [Array<String>] further options of the server program
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

# For tests that need this server.
module MariaDBHelpers
  # @return [TestMariaDB] this process's server
  def mariadb
    TestMariaDB.shared
  end
end
