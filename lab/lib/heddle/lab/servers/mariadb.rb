# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      # MariaDB with a database and a user for the tests. Listens on TCP, and on the UNIX socket #socket.
      class MariaDB < Server
        USER = "heddle"
        PASSWORD = "heddle-test"
        DATABASE = "heddle"

        def username = USER

        def password = PASSWORD

        def database = DATABASE

        def socket = File.join(dir, "s")

        # The version of the installed server, such as "11.8.9", which need not run. Raises Unavailable without one.
        def version
          check
          run!(@server, "--version")[/(?<=Ver )\d+(?:\.\d+)*/]
        end

        def url = "mysql://#{USER}:#{PASSWORD}@#{host}:#{port}/#{DATABASE}"

        private

        PACKAGE = "mariadb-server-core"
        private_constant :PACKAGE

        # Small files and no syncing: the data lives as long as the tests.
        INNODB = %w[--innodb-log-file-size=4M --innodb-doublewrite=0 --innodb-flush-log-at-trx-commit=0].freeze
        private_constant :INNODB

        def check
          @server = program("mariadbd", "mysqld", package: PACKAGE)
          @install = program("mariadb-install-db", "mysql_install_db", package: PACKAGE)
          @client = program("mariadb", "mysql", package: "mariadb-client-core")
        end

        def prepare
          FileUtils.cp_r("#{template}/.", data)
          File.write(init_file, <<~SQL)
            CREATE DATABASE IF NOT EXISTS #{DATABASE} CHARACTER SET utf8mb4;
            CREATE USER IF NOT EXISTS '#{USER}'@'%' IDENTIFIED BY '#{PASSWORD}';
            CREATE USER IF NOT EXISTS '#{USER}'@'localhost' IDENTIFIED BY '#{PASSWORD}';
            GRANT ALL ON *.* TO '#{USER}'@'%' WITH GRANT OPTION;
            GRANT ALL ON *.* TO '#{USER}'@'localhost' WITH GRANT OPTION;
          SQL
        end

        def command
          # A folder of its own for temporary files: a server that starts removes all that it finds there.
          [@server, "--no-defaults", *as_root, "--datadir=#{data}", "--tmpdir=#{dir}", "--socket=#{socket}",
            "--pid-file=#{dir}/p",
            "--bind-address=#{host}", "--port=#{port}", "--init-file=#{init_file}", *INNODB,
            "--innodb-buffer-pool-size=16M", "--skip-log-bin", "--skip-name-resolve", "--max-connections=300"]
        end

        def ready?
          File.exist?(socket) && system(
            {**Guard::CLEAN, "MYSQL_PWD" => PASSWORD}, @client, "--no-defaults", "--protocol=TCP", "-h", host,
            "-P", port.to_s, "-u", USER,
            "-e", "select 1", DATABASE, in: File::NULL, out: File::NULL, err: File::NULL
          )
        end

        def template
          version = run!(@server, "--no-defaults", "--version")[/\d+(?:\.\d+)+/]
          Servers.cached("mariadb-#{version}") do |folder|
            run!(@install, "--no-defaults", *as_root, "--datadir=#{folder}", "--auth-root-authentication-method=normal",
              "--skip-test-db", "--skip-name-resolve", *INNODB)
          end
        end

        # MariaDB refuses to run as root unless told to.
        def as_root = root? ? ["--user=root"] : []

        def data = File.join(dir, "data")

        def init_file = File.join(dir, "init.sql")
      end
    end
  end
end
