# frozen_string_literal: true

require_relative "question"

module Heddle
  class CLI
    # Finds processes, and their sockets.
    module Processes
      MOST = 1000 # processes
      private_constant :MOST

      module_function

      # @param pid [Integer]
      # @param words [String] the question
      # @return [Insight::Snapshot]
      # @raise [Failure] that says why the process does not answer
      def ask(pid, words)
        user = user_of(pid)
        refused = nil
        Insight::Folder.of(user).each do |path|
          folder = Insight::Folder.new(path)
          folder.sockets(pid).each do |socket|
            snapshot = Question.new(folder, socket).ask(words) or next
            return snapshot if here?(snapshot, pid)

            refused = Failure.new("process #{pid} that listens at #{socket} is in another pid namespace, as a " \
              "container has it: run heddle in there")
          end
        rescue Errno::EACCES
          refused = Failure.new(strangers(pid, user))
        end
        raise refused || silent(pid, user)
      end

      # @param pid [Integer]
      # @return [Array<Integer>] the children of the process, and theirs
      def children(pid)
        found = []
        queue = [pid]
        while (parent = queue.shift) && found.size < MOST
          own = children_of(parent) - found
          found.concat(own)
          queue.concat(own)
        end
        found.sort
      end

      # @param words [String] the question
      # @return [Array<Insight::Snapshot>] of all processes of this user that answer
      def all(words)
        Insight::Folder.of(Process.euid).flat_map do |path|
          folder = Insight::Folder.new(path)
          folder.all.first(MOST).filter_map do |socket|
            Question.new(folder, socket).ask(words)
          rescue Failure
            nil
          end
        end
      end

      def user_of(pid)
        File.stat("/proc/#{pid}").uid
      rescue Errno::ENOENT
        raise Absent, "there is no process #{pid}" if File.directory?("/proc/self") || !exists?(pid)

        Process.euid # without /proc
      end

      def exists?(pid)
        Process.kill(0, pid)
        true
      rescue Errno::ESRCH
        false
      rescue SystemCallError, RangeError
        true
      end

      def children_of(pid)
        Dir.glob("/proc/#{pid}/task/*/children").flat_map do |file|
          File.read(file).split.map(&:to_i)
        rescue SystemCallError
          [] # of a thread that has just ended
        end
      end

      # The process's own pid, as it knows it, must be this one, in this namespace.
      def here?(snapshot, pid)
        own = snapshot.process["namespace"]
        snapshot.process["pid"] == pid && (own.nil? || own == File.readlink("/proc/self/ns/pid"))
      rescue SystemCallError
        true
      end

      def silent(pid, user)
        return Failure.new(strangers(pid, user)) unless user == Process.euid || Process.euid.zero?

        elsewhere = " (it is in another pid namespace, as a container has it: run heddle in there)"
        Absent.new("process #{pid} does not listen: have it call Heddle.insight, or start it with HEDDLE_INSIGHT=1" \
          "#{elsewhere unless same_namespace?(pid)}")
      end

      def strangers(pid, user) = "process #{pid} is user #{user}'s: heddle ps must run as that user"

      def same_namespace?(pid)
        File.readlink("/proc/#{pid}/ns/pid") == File.readlink("/proc/self/ns/pid")
      rescue SystemCallError
        true
      end
    end
    private_constant :Processes
  end
end
