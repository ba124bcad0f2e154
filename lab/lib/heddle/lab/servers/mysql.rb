# frozen_string_literal: true

module Heddle
  module Lab
    module Servers
      # MySQL itself, which script/mysql fetches: for what MariaDB does in another way.
      class MySQL < MariaDB
        # With the key of the server, by which a new user logs in without TLS.
        def url = "#{super}?server_public_key=ask"

        private

        # Beside the program, which no package has put where its defaults are.
        def home = File.join(File.dirname(@server), "root/usr")

        def check
          cache = ENV.fetch("XDG_CACHE_HOME") { File.join(Dir.home, ".cache") }
          @server = Servers.find_program("mysqld", folders: [File.join(cache, "heddle", "mysql")])
          return if @server&.start_with?(cache)

          raise Servers::Unavailable, "MySQL is not there: script/mysql fetches it"
        end

        def command
          [@server, *common, "--datadir=#{data}", "--tmpdir=#{dir}", "--socket=#{socket}", "--pid-file=#{dir}/p",
            "--bind-address=#{host}", "--port=#{port}", "--init-file=#{init_file}", "--mysqlx=OFF", "--skip-log-bin",
            "--skip-name-resolve", "--max-connections=300", "--innodb-buffer-pool-size=16M"]
        end

        # Seconds; it starts more slowly than MariaDB.
        def start_deadline = 90

        def ready? = File.exist?(socket) && answers?("", /caching_sha2_password/)

        def template
          version = run!(@server, "--no-defaults", "--version")[/\d+(?:\.\d+)+/]
          Servers.cached("mysql-#{version}") do |folder|
            run!(@server, *common, "--initialize-insecure", "--datadir=#{folder}/new")
            FileUtils.mv(Dir["#{folder}/new/*"], folder)
            FileUtils.rmdir("#{folder}/new")
          end
        end

        def common
          ["--no-defaults", *as_root, "--secure-file-priv=", "--basedir=#{home}",
            "--lc-messages-dir=#{home}/share/mysql", "--innodb-redo-log-capacity=8M", "--innodb-doublewrite=0",
            "--innodb-flush-log-at-trx-commit=0"]
        end
      end
    end
  end
end
