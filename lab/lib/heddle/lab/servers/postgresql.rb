# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      # PostgreSQL with a superuser for the tests: with a password over TCP (scram-sha-256), without one over the UNIX
      # socket in #socket_dir.
      class PostgreSQL < Server
        USER = "heddle"
        PASSWORD = "heddle-test"
        DATABASE = "postgres"

        def username = USER

        def password = PASSWORD

        def database = DATABASE

        def socket_dir = dir

        # The version of the installed server, such as "18.1", which need not run. Raises Unavailable without one.
        def version
          check
          run!(@server, "--version")[/\d+(?:\.\d+)*/]
        end

        def url = "postgresql://#{USER}:#{PASSWORD}@#{host}:#{port}/#{DATABASE}"

        private

        PACKAGE = "postgresql"
        private_constant :PACKAGE

        def check
          # Debian keeps the servers out of PATH, one folder a version: take the newest.
          folders = Dir["/usr/lib/postgresql/*/bin"].sort_by { |path| -path[/\d+/].to_i }
          @server = program("postgres", folders: folders, package: PACKAGE)
          @initdb = program("initdb", folders: folders, package: PACKAGE)
          @client = program("psql", folders: folders, package: "postgresql-client")
          return unless user
          Etc.getpwnam(user)
        rescue ArgumentError
          raise Unavailable,
            "PostgreSQL refuses to run as root, and there is no user #{user} (Debian package #{PACKAGE})"
        end

        # initdb and postgres refuse to run as root.
        def user = root? ? "postgres" : nil

        # An immediate shutdown: the data is deleted anyway, and the server need not wait for clients.
        def stop_signal = :QUIT

        def prepare
          FileUtils.cp_r("#{template}/.", data, preserve: true)
          give(data)
          File.chmod(0o700, data)
        end

        def command
          settings = {listen_addresses: host, fsync: "off", full_page_writes: "off", synchronous_commit: "off",
                      max_connections: 200, shared_buffers: "16MB", unix_socket_directories: dir}
          [@server, "-D", data, "-p", port.to_s, *settings.flat_map { |key, value| ["-c", "#{key}=#{value}"] }]
        end

        def ready?
          system(
            {**Guard::CLEAN, "PGPASSWORD" => PASSWORD, "PGCONNECT_TIMEOUT" => "2"}, @client, "-X", "-q", "-h", host,
            "-p", port.to_s, "-U", USER, "-d", DATABASE, "-c", "select 1",
            in: File::NULL, out: File::NULL, err: File::NULL
          )
        end

        def template
          # Each server starts with a copy: its first segment of the log would be 16 of 39 MB.
          Servers.cached("postgresql-#{version}-short-log") do |folder|
            # The database is made in a folder of the other user, who may not enter the cache under root's home.
            Dir.mktmpdir("heddle-initdb-") do |made|
              password_file = File.join(made, "password")
              File.write(password_file, PASSWORD)
              give(made)
              run!(@initdb, "-D", File.join(made, "data"), "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync",
                "--no-instructions", "--wal-segsize=1", "--auth-local=trust", "--auth-host=scram-sha-256",
                "--pwfile=#{password_file}", user: user)
              FileUtils.cp_r("#{made}/data/.", folder, preserve: true)
            end
          end
        end

        def data = File.join(dir, "data")
      end
    end
  end
end
