# frozen_string_literal: true

require "socket"

module Heddle
  module Insight
    # The folder of the sockets is another user's, or others may write into it.
    class Insecure < StandardError
    end

    # The sockets of one user's processes: `PID.sock`, or `PID-1.sock` where a process of another pid namespace has that
    # pid, too.
    #
    # @api private
    class Folder
      LOCK = "lock"
      # A path of a socket has at most so many bytes, on the system that has the fewest.
      LONGEST = 103
      NAMES = 10
      PATIENCE = 1.0 # seconds
      private_constant :LOCK, :LONGEST, :NAMES, :PATIENCE

      # @return [String] the folder of this process's user
      def self.own
        runtime = ENV["XDG_RUNTIME_DIR"].to_s
        path = File.join(runtime, "heddle")
        usable = runtime.start_with?("/") && path.bytesize < LONGEST - 20 && own?(runtime)
        usable ? path : "/tmp/heddle-#{Process.euid}"
      end

      # @param user [Integer]
      # @return [Array<String>] that user's folders, where the user's processes have their sockets. In a folder of
      #   another user, that user's processes could answer in their name
      def self.of(user)
        paths = [*(own if user == Process.euid), "/run/user/#{user}/heddle", "/tmp/heddle-#{user}"]
        paths.uniq.select { |path| own?(path, user) }
      end

      # @param user [Integer]
      # @return [Boolean] whether this is a folder of the user into which nobody else may write
      def self.own?(path, user = Process.euid)
        status = File.lstat(path)
        status.directory? && status.uid == user && (status.mode & 0o022).zero?
      rescue SystemCallError
        false
      end

      # Removes the socket of a process that listens no more. Another process may do so at the same time.
      #
      # @param socket [String]
      # @return [void]
      def self.remove(socket)
        File.unlink(socket)
      rescue Errno::ENOENT
        nil
      end

      # @return [String]
      attr_reader :path

      # @param path [String]
      def initialize(path)
        @path = path
      end

      # Yields a path at which nobody listens, in the folder, which it makes if need be.
      #
      # @param pid [Integer]
      # @return [String] that path
      # @raise [Insecure]
      def bind(pid)
        make
        locked do
          remove_dead
          free = names(pid).find { |name| !File.exist?(name) }
          raise Insecure, "#{names(pid).first}: other processes have all #{NAMES} names" unless free

          yield free
          free
        end
      end

      # @return [Array<String>] the sockets of that pid, in whichever pid namespace
      def sockets(pid) = names(pid).select { |name| File.socket?(name) }

      # @return [Array<String>] all sockets
      def all
        paths = Dir.glob("*.sock", base: @path).map { |name| File.join(@path, name) }
        paths.select { |path| File.socket?(path) }
      end

      # Connects. A socket that a process has left behind is removed.
      #
      # @param socket [String]
      # @param limit [Float] until when it may wait for a place among those that are not served yet
      # @return [Socket, nil] nil if nobody listens there
      # @raise [SystemCallError] EAGAIN: for want of a place
      def connect(socket, limit)
        connect_at_once(socket)
      rescue Errno::EAGAIN
        raise Errno::EAGAIN, "the process accepts no connection" if Clock.now > limit

        sleep(0.01)
        retry
      rescue Errno::ECONNREFUSED
        locked { remove_dead_at(socket) } if Folder.own?(@path)
        nil
      rescue Errno::ENOENT
        nil
      end

      private

      # A process that is stopped accepts nobody, and another connect would wait for ever.
      def connect_at_once(path)
        socket = Socket.new(:UNIX, :STREAM)
        socket.connect_nonblock(Socket.sockaddr_un(path))
        connected = socket
      ensure
        socket&.close unless connected
      end

      def names(pid) = Array.new(NAMES) { |index| File.join(@path, "#{pid}#{"-#{index}" if index > 0}.sock") }

      def make
        begin
          Dir.mkdir(@path, 0o700)
        rescue Errno::EEXIST
          nil
        end
        return if Folder.own?(@path) && (File.lstat(@path).mode & 0o077).zero?

        raise Insecure, "#{@path} must be a folder that only user #{Process.euid} can open (mode 0700): remove it, " \
          "or set XDG_RUNTIME_DIR to another folder"
      end

      # Nobody listens yet between the making of a socket and its first `listen`, and it must not be removed then.
      def locked
        File.open(File.join(@path, LOCK), File::RDWR | File::CREAT | File::NOFOLLOW | File::NONBLOCK, 0o600) do |file|
          limit = Clock.now + PATIENCE
          until file.flock(File::LOCK_EX | File::LOCK_NB)
            raise Errno::EWOULDBLOCK, file.path if Clock.now > limit

            sleep(0.01)
          end
          yield
        ensure
          file.flock(File::LOCK_UN) # closing is not enough: a child that was made meanwhile has the lock, too
        end
      end

      def remove_dead = all.each { |socket| remove_dead_at(socket) unless alive?(File.basename(socket).to_i) }

      def alive?(pid)
        return false if pid == Process.pid # of an earlier process

        Process.kill(0, pid)
        true
      rescue Errno::ESRCH
        false
      rescue SystemCallError, RangeError
        true
      end

      # A pid may be alive in another namespace: only a socket that refuses is dead.
      def remove_dead_at(socket)
        connect_at_once(socket).close
      rescue Errno::ECONNREFUSED
        Folder.remove(socket)
      rescue SystemCallError
        nil
      end
    end
  end
end
