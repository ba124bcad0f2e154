# frozen_string_literal: true

require "etc"
require "fileutils"
require "rbconfig"
require "socket"
require "tmpdir"

module Heddle
  module Lab
    module Servers
      # The program is not installed, or cannot run here; tests skip then. The message names the program, and how to get
      # it.
      class Unavailable < StandardError; end

      # The program is installed, but did not start. The message has the end of its log.
      class StartFailed < StandardError; end

      # One server program, started for the tests of this process and ended with it.
      #
      # A subclass defines the command (#command), whether it answers (#ready?), and what it needs first (#check,
      # #prepare). The program writes only to a temporary folder, which is deleted when it stops.
      class Server
        HOST = "127.0.0.1"
        # Below the kernel's ephemeral range, so that no client's own port can take the place of a server which
        # restarts.
        PORTS = (20_000..32_000)
        PROBE_INTERVAL = 0.02
        LOG_TAIL = 4000
        ATTEMPTS = 3

        # Locked by the process that started the server, as long as it lives.
        CLAIM = "claim"

        # Deletes the folders of processes that were killed.
        def self.sweep
          Dir[File.join(Dir.tmpdir, "heddle-server-*", CLAIM)].each do |path|
            File.open(path) do |claim|
              FileUtils.rm_rf(File.dirname(path)) if claim.flock(File::LOCK_EX | File::LOCK_NB)
            end
          rescue SystemCallError
            next # another user's folder, or another process was quicker
          end
        end

        attr_reader :port, :pid, :dir

        # Starts the server and returns it once it has answered a request.
        def start
          raise "#{name} is already running with pid #{pid}" if pid
          check
          attempt = 0
          begin
            attempt += 1
            launch
          rescue StartFailed
            # A port that was free a moment ago may be taken by now; any other fault shows again on the next attempt.
            retry if attempt < ATTEMPTS && port_taken?
            raise
          end
          self
        end

        # Represents a server that another process started, and will stop.
        def adopt(port:, dir:)
          @port = port
          @dir = dir
          self
        end

        # Ends the server and deletes its data. Does nothing in a child of the process that started it.
        def stop
          return unless pid && Process.pid == @owner
          terminate
          discard
          @pid = nil
          self
        end

        def running?
          return false unless pid && !@ended && Process.pid == @owner
          @ended = !Process.waitpid(pid, Process::WNOHANG).nil?
          !@ended
        rescue Errno::ECHILD
          @ended = true
          false
        end

        def host = HOST

        def url = "#{scheme}://#{host}:#{port}"

        def name = self.class.name.split("::").last

        # The last lines that the server wrote.
        def log
          text = File.binread(log_path)
          (text.bytesize > LOG_TAIL) ? "…#{text.byteslice(-LOG_TAIL, LOG_TAIL)}" : text
        rescue SystemCallError => e
          "(no log: #{e.message})"
        end

        private

        def scheme = "tcp"

        # Seconds from launch to the first answer. Generous, since the machine may be busy.
        def start_deadline = 30

        # Seconds between the stop signal and SIGKILL.
        def stop_deadline = 10

        def stop_signal = :TERM

        # The user that the program runs as, if it is not the user of the tests.
        def user = nil

        def environment = {}

        # Raises Unavailable unless the program can be run.
        def check
        end

        # Fills #dir before each launch.
        def prepare
        end

        def command = raise(NotImplementedError, "#{self.class}#command")

        def ready? = raise(NotImplementedError, "#{self.class}#ready?")

        def launch
          @owner = Process.pid
          @ended = false
          Server.sweep
          make_dir
          @port = Servers.free_port
          give(dir)
          prepare
          @pid = Guard.spawn(environment, command, user: user, signal: stop_signal, log: log_path)
          wait_until_ready
        rescue
          terminate if pid
          @failure_log = log if dir
          discard if dir
          @pid = nil
          raise
        end

        # Another process may sweep at any moment: the folder has its name when it is claimed.
        def make_dir
          unclaimed = Dir.mktmpdir("heddle-unclaimed-")
          @claim = File.open(File.join(unclaimed, CLAIM), File::RDWR | File::CREAT)
          @claim.flock(File::LOCK_EX)
          @dir = unclaimed.sub("heddle-unclaimed-", "heddle-server-#{name.downcase}-")
          File.rename(unclaimed, dir)
        end

        def discard
          FileUtils.rm_rf(dir)
          @claim.close
        end

        def wait_until_ready
          deadline = Clock.now + start_deadline
          until ready?
            unless running?
              raise StartFailed, "#{name} ended while starting on port #{port} (#{command.first}). Its log:\n#{log}"
            end
            if Clock.now > deadline
              raise StartFailed, "#{name} did not answer on port #{port} within #{start_deadline} s. Its log:\n#{log}"
            end
            sleep PROBE_INTERVAL
          end
        end

        def terminate
          # Once the process is reaped, its number may already belong to another program.
          return unless running?
          Process.kill(stop_signal, pid)
          deadline = Clock.now + stop_deadline
          while running?
            Process.kill(:KILL, pid) if Clock.now > deadline
            sleep PROBE_INTERVAL
          end
        end

        def port_taken? = /address (?:is )?already in use|EADDRINUSE/i.match?(@failure_log.to_s)

        def log_path = File.join(dir, "server.log")

        def root? = Process.uid.zero?

        # Makes a path belong to the user that the program will run as.
        def give(path)
          FileUtils.chown_R(user, nil, path) if user
        end

        # The full path of the first of these programs that is installed.
        def program(*names, package:, folders: [])
          Servers.find_program(*names, folders: folders) ||
            raise(Unavailable, "#{name} is not installed: no #{names.join(" or ")} found (Debian package #{package})")
        end

        # Runs a short helper program to its end and returns what it printed.
        def run!(*argv, user: nil, env: {}, deadline: 120)
          out = File.join(Dir.tmpdir, "heddle-run-#{Process.pid}-#{object_id}.log")
          child = Guard.spawn(env, argv, user: user, signal: :KILL, log: out)
          limit = Clock.now + deadline
          until (status = Process.waitpid2(child, Process::WNOHANG)&.last)
            if Clock.now > limit
              Process.kill(:KILL, child)
              Process.wait(child)
              raise StartFailed, "#{argv.first} did not end within #{deadline} s. It said:\n#{File.binread(out)}"
            end
            sleep PROBE_INTERVAL
          end
          text = File.binread(out)
          raise StartFailed, "#{argv.join(" ")} failed (#{status}). It said:\n#{text}" unless status.success?
          text
        ensure
          FileUtils.rm_f(out) if out
        end

        # Sends a line to the server's port and tells whether the answer matches.
        def answers?(request, pattern, timeout: 1)
          socket = Socket.tcp(host, port, connect_timeout: timeout)
          socket.write(request)
          socket.wait_readable(timeout) && pattern.match?(socket.readpartial(4096))
        rescue SystemCallError, EOFError
          false
        ensure
          socket&.close
        end
      end
    end
  end
end
