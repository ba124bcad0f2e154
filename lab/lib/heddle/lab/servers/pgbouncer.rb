# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      # PgBouncer in transaction mode before a PostgreSQL: a client has a server's session for one transaction.
      class PgBouncer < Server
        # @param postgresql [PostgreSQL] the server behind it
        # @param settings [Hash] further settings of pgbouncer.ini
        def initialize(postgresql = Servers.postgresql, **settings)
          @postgresql = postgresql
          @settings = settings
        end

        def username = PostgreSQL::USER

        def password = PostgreSQL::PASSWORD

        def database = PostgreSQL::DATABASE

        def url = "postgresql://#{username}:#{password}@#{host}:#{port}/#{database}"

        private

        PACKAGE = "pgbouncer"
        private_constant :PACKAGE

        def check
          @server = program("pgbouncer", package: PACKAGE)
          return unless user
          Etc.getpwnam(user)
        rescue ArgumentError
          raise Unavailable,
            "PgBouncer refuses to run as root, and there is no user #{user} (Debian package #{PACKAGE})"
        end

        # It refuses to run as root.
        def user = root? ? "postgres" : nil

        # Ends every version at once. Since 1.23, TERM waits until the clients have left.
        def stop_signal = :QUIT

        def prepare
          files = {"users.txt" => "\"#{username}\" \"#{password}\"\n", "pgbouncer.ini" => configuration}
          files.each do |name, text|
            path = File.join(dir, name)
            File.write(path, text)
            give(path)
          end
        end

        def configuration
          settings = {listen_addr: host, listen_port: port, unix_socket_dir: "", auth_type: "scram-sha-256",
                      auth_file: "#{dir}/users.txt", pool_mode: "transaction", default_pool_size: 4,
                      max_client_conn: 200, server_tls_sslmode: "disable", **@settings}
          <<~INI
            [databases]
            * = host=#{@postgresql.host} port=#{@postgresql.port}
            [pgbouncer]
            #{settings.map { |name, value| "#{name} = #{value}" }.join("\n")}
          INI
        end

        def command = [@server, File.join(dir, "pgbouncer.ini")]

        def ready?
          TCPSocket.open(host, port, &:close)
          true
        rescue SystemCallError
          false
        end
      end
    end
  end
end
