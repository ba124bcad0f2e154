# frozen_string_literal: true

require "heddle/core/clock"
require "json"
require "open3"
require "socket"
require_relative "server_process"

module Heddle
  module Lab
    # Real servers for tests and benches, without a service manager: each is started at the first use in a process,
    # shared by all code in the process, and ended with the process.
    #
    #   db = Servers.mariadb            # raises Servers::Unavailable where MariaDB is not installed
    #   db.host, db.port, db.url
    #
    # Code that needs a second server of a kind, with its own options, starts and stops it itself:
    #
    #   cache = Servers::Memcached.new.start
    #   cache.stop
    #
    # test/support/serve.rb starts servers outside the process of the tests, and says in HEDDLE_TEST_SERVERS where they
    # are: for tests in a chroot without servers (of another Ruby), or to start servers once for many test processes.
    module Servers
      KINDS = {mariadb: :MariaDB, mysql: :MySQL, postgresql: :PostgreSQL, memcached: :Memcached, redis: :Redis,
               s3: :S3rver, load: :LoadServer}.freeze
      ELSEWHERE = "HEDDLE_TEST_SERVERS"

      @lock = Mutex.new
      @shared = {}

      class << self
        # The load server of this repository is +load+: GET /MS answers after MS milliseconds.
        KINDS.each_key { |kind| define_method(kind) { shared(kind) } }

        # The shared servers that run, for the environment of another process.
        def elsewhere
          running = @lock.synchronize { @shared.reject { |_, server| server.is_a?(Exception) } }
          {ELSEWHERE => JSON.generate(running.transform_values { |server| {port: server.port, dir: server.dir} })}
        end

        # Ends every shared server of this process.
        def stop
          servers = @lock.synchronize { @shared.values.tap { @shared = {} } }
          servers.each { |server| server.stop unless server.is_a?(Exception) }
        end

        # A port on the loopback on which no program listens at the moment.
        def free_port
          100.times do
            port = rand(Server::PORTS)
            TCPServer.new(Server::HOST, port).close
            return port
          rescue Errno::EADDRINUSE, Errno::EACCES
            next
          end
          raise StartFailed,
            "no free port found on #{Server::HOST} between #{Server::PORTS.min} and #{Server::PORTS.max}"
        end

        def find_program(*names, folders: [])
          folders += ENV.fetch("PATH", "").split(File::PATH_SEPARATOR) + %w[/usr/local/sbin /usr/sbin /sbin]
          names.product(folders).map { |name, folder| File.join(folder, name) }
            .find { |path| File.file?(path) && File.executable?(path) }
        end

        # The folder that keeps results of slow work between runs.
        def cache_dir
          base = ENV["XDG_CACHE_HOME"].to_s
          base = File.join(Dir.home, ".cache") unless base.start_with?("/")
          File.join(base, "heddle", "servers").tap { |dir| FileUtils.mkdir_p(dir) }
        end

        # Returns the folder +name+ of the cache, made by the block if it is not there yet. Safe between processes; a
        # block that fails leaves nothing behind.
        def cached(name)
          final = File.join(cache_dir, name)
          return final if File.directory?(final)
          File.open("#{final}.lock", File::RDWR | File::CREAT) do |lock|
            lock.flock(File::LOCK_EX)
            return final if File.directory?(final)
            partial = "#{final}.partial"
            FileUtils.rm_rf(partial)
            FileUtils.mkdir_p(partial)
            yield partial
            File.rename(partial, final)
          end
          final
        end

        # The folder of a package of Node.js, which npm installs at the first use.
        def node_package(name, version)
          cached("#{name}-#{version}") do |folder|
            npm = find_program("npm") || raise(Unavailable, "npm is not installed (Debian package npm)")
            output, status = Open3.capture2e("timeout", "300", npm, "install", "--prefix", folder, "--ignore-scripts",
              "--no-audit", "--no-fund", "#{name}@#{version}")
            unless status.success?
              raise Unavailable, "#{name} is not installed, and npm could not install #{name}@#{version}: #{output}"
            end
          end
        end

        private

        # A server that failed to start fails at once for every later test, with the same reason.
        def shared(kind)
          @lock.synchronize do
            stop_at_exit
            server = @shared[kind] ||= begin
              known = JSON.parse(ENV.fetch(ELSEWHERE, "{}"), symbolize_names: true)[kind]
              server = const_get(KINDS.fetch(kind)).new
              known ? server.adopt(**known) : server.start
            rescue Unavailable, StartFailed => e
              e
            end
            raise server if server.is_a?(Exception)
            server
          end
        end

        def stop_at_exit
          return if @owner == Process.pid
          @owner = owner = Process.pid
          at_exit { stop if Process.pid == owner }
        end
      end
    end
  end
end

require_relative "servers/guard"
require_relative "servers/server"
require_relative "servers/mariadb"
require_relative "servers/mysql"
require_relative "servers/postgresql"
require_relative "servers/pgbouncer"
require_relative "servers/memcached"
require_relative "servers/redis"
require_relative "servers/s3rver"
require_relative "servers/load_server"
