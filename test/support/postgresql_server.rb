# frozen_string_literal: true

require "support/servers"
require "heddle/db"
require "support/certificates"

# The PostgreSQL that the tests share.
module PostgreSQLHelpers
  def postgresql
    server = Servers.postgresql
    skip server.message if server.is_a?(Exception)
    server
  end
end

# A PostgreSQL of a test file's own: it speaks TLS, and has users that log in in each way. Tests may change it.
class TestPostgreSQL < Servers::PostgreSQL
  # Who has to log in how over TCP; all have PASSWORD.
  USERS = {"of_md5" => "md5", "of_clear" => "password", "of_trust" => "trust", "of_none" => "reject",
           "of_peer" => "ident", "of_gss" => "gss"}.freeze

  # @return [TestPostgreSQL] the server of this process
  def self.shared
    @shared ||= new.start.tap do |server|
      owner = Process.pid
      at_exit { server.stop if Process.pid == owner }
      server.make_users
    end
  end

  # @param settings [Hash] further settings of the server
  def initialize(**settings)
    @settings = settings
  end

  def ca_file = Certificates.authority_file

  # @return [String] a URL of another user
  def url_of(user, password: Servers::PostgreSQL::PASSWORD, **options)
    query = options.empty? ? "" : "?#{URI.encode_www_form(options)}"
    "postgresql://#{user}:#{password}@#{host}:#{port}/#{database}#{query}"
  end

  # Ends the program and starts it again on the same port, with the same data.
  def restart
    terminate
    @ended = false
    @pid = Servers::Guard.spawn(environment, command, user: user, signal: stop_signal, log: log_path)
    wait_until_ready
  end

  def make_users
    statements = (USERS.keys + %w[of_tls of_plain of_cert]).map do |name|
      "set password_encryption = #{(name == "of_md5") ? "md5" : "'scram-sha-256'"}; " \
        "create user #{name} password '#{PASSWORD}'"
    end
    sql(*statements)
  end

  # Runs statements by psql, as the superuser.
  def sql(*statements)
    run!(@client, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", dir, "-p", port.to_s, "-U", USER, "-d", DATABASE,
      *statements.flat_map { |statement| ["-c", statement] })
  end

  private

  def prepare
    super
    certificate, key = Certificates.server
    {"cert.pem" => certificate.to_pem, "key.pem" => key.to_pem, "ca.pem" => Certificates.authority.first.to_pem,
     "data/pg_hba.conf" => rules}.each do |name, text|
      path = File.join(dir, name)
      File.write(path, text)
      File.chmod(0o600, path)
      give(path)
    end
  end

  def rules
    lines = USERS.map { |name, way| "host all #{name} all #{way}" }
    lines += ["hostssl all of_cert all cert", "hostssl all of_tls all scram-sha-256",
      "hostnossl all of_plain all scram-sha-256", "host all of_tls,of_plain,of_cert all reject"]
    "local all all trust\n#{lines.join("\n")}\nhost all all all scram-sha-256\n"
  end

  def command
    settings = {ssl: "on", ssl_cert_file: "#{dir}/cert.pem", ssl_key_file: "#{dir}/key.pem",
                ssl_ca_file: "#{dir}/ca.pem", **@settings}
    super + settings.flat_map { |name, value| ["-c", "#{name}=#{value}"] }
  end
end

# A standby that has no primary, and so stays where its data ends. A cold one lets nobody in: it starts up for ever.
class StandbyPostgreSQL < TestPostgreSQL
  def initialize(hot:)
    @hot = hot
    super(hot_standby: hot ? "on" : "off")
  end

  private

  def prepare
    super
    File.write("#{data}/standby.signal", "")
    give("#{data}/standby.signal")
  end

  def ready?
    @hot ? super : TCPSocket.new(host, port).close.nil?
  rescue SystemCallError
    false
  end
end

# For tests that need this server.
module OwnPostgreSQLHelpers
  # @return [TestPostgreSQL] this process's server
  def postgresql
    TestPostgreSQL.shared
  end
end
