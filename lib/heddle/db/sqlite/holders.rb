# frozen_string_literal: true

module Heddle
  module DB
    module SQLite
      # Tells which processes hold locks of a database, by /proc/locks if the system has it. Opening the file and
      # closing it again would end all locks of this process (POSIX's rule for advisory locks).
      #
      # @api private
      module Holders
        LOCKS = "/proc/locks"
        LINE = /\A\d+: POSIX\s+ADVISORY\s+(READ|WRITE)\s+(\d+)\s+(\h+:\h+:\d+)\s/
        # Has the devices by which the kernel knows file systems; stat has others for some (btrfs).
        MOUNTS = "/proc/self/mountinfo"
        private_constant :LOCKS, :LINE, :MOUNTS

        class << self
          # @param path [String] of the database
          # @param locks [String] the system's list
          # @return [String, nil] "process 12 (ruby)", several with commas between them; nil if the system does not tell
          def of(path, locks = LOCKS)
            files = [path, "#{path}-shm"].filter_map { |file| number_of(file) if File.exist?(file) }
            held = File.foreach(locks).filter_map do |line|
              kind, pid, file = LINE.match(line)&.captures
              [kind, pid.to_i] if files.include?(file)
            end
            mine, others = held.uniq.partition { |_, pid| pid == Process.pid }
            writers, readers = others.partition { |kind, _| kind == "WRITE" }
            # With a write-ahead log idle connections hold a lock for reading, too, and nobody waits for those locks.
            readers = [] if files.size > 1
            found = writers.map { |_, pid| "process #{pid}#{name(pid)}" }
            found = readers.map { |_, pid| "process #{pid}#{name(pid)}, which reads" } if found.empty?
            found = ["another connection of this process"] if found.empty? && mine.any?
            found.join(", ") unless found.empty?
          rescue SystemCallError
            nil
          end

          private

          # The file as the list of locks names it: 08:01:1234, its device and its inode.
          def number_of(file)
            path = File.realpath(file)
            mounts = File.foreach(MOUNTS).map { |line| line.split(" ").values_at(2, 4) }
            mounts.each { |mount| mount[1] = mount[1].gsub(/\\(\d{3})/) { $1.oct.chr } }
            over = mounts.each_index.select { |index| path.start_with?(mounts[index][1].chomp("/") + "/") }
            major, minor = mounts[over.max_by { |index| [mounts[index][1].size, index] }][0].split(":")
            format("%02x:%02x:%d", major.to_i, minor.to_i, File.stat(file).ino)
          end

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
