# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # Tells which processes hold locks of a database. The system is asked by /proc/locks, where there is one: to open
      # the file and close it again would end all locks of this process (POSIX's rule for advisory locks).
      #
      # @api private
      module Holders
        LOCKS = "/proc/locks"
        LINE = /\A\d+: POSIX\s+ADVISORY\s+(READ|WRITE)\s+(\d+)\s+\h+:\h+:(\d+)\s/
        private_constant :LOCKS, :LINE

        class << self
          # @param path [String] of the database
          # @return [String, nil] "process 12 (ruby)", several with commas between them; nil if the system does not tell
          def of(path)
            inodes = [path, "#{path}-shm"].filter_map { |file| File.stat(file).ino if File.exist?(file) }
            pids = File.foreach(LOCKS).filter_map do |line|
              kind, pid, inode = LINE.match(line)&.captures
              pid.to_i if kind == "WRITE" && inodes.include?(inode.to_i) && pid.to_i != Process.pid
            end
            pids.empty? ? nil : pids.uniq.map { |pid| "process #{pid}#{name(pid)}" }.join(", ")
          rescue SystemCallError
            nil
          end

          private

          def name(pid)
            " (#{File.read("/proc/#{pid}/comm").strip})"
          rescue SystemCallError
            nil
          end
        end
      end
      private_constant :Holders
    end
  end
end
