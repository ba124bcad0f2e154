# frozen_string_literal: true

module Heddle
  # What tells that a file, or one of a folder's files, was replaced or written: for certificates, which programs that
  # renew them write to the same path.
  #
  # @api private
  module FileStamp
    # Seconds for which a folder's files are not looked at again.
    SECONDS = 1.0
    # The most folders whose files are known.
    FOLDERS = 16
    private_constant :SECONDS, :FOLDERS

    @folders = {}

    class << self
      # @param path [String, nil]
      # @return [Array, Integer, nil] equal to that of another time if nothing has changed; the number of the system's
      #   error where there is no such file
      def of(path)
        return unless path

        stat = File.stat(path)
        own = fields(stat)
        stat.directory? ? own << of_files(path, own) : own
      rescue SystemCallError => error
        error.errno
      end

      private

      def fields(stat)
        written, changed = stat.mtime, stat.ctime
        [stat.dev, stat.ino, stat.size, written.to_i, written.nsec, changed.to_i, changed.nsec]
      end

      # Folders of authorities have hundreds of files.
      def of_files(path, own)
        known = @folders[path]
        return known[1] if known && known[0] == own && Clock.now - known[2] < SECONDS

        stamp = Dir.children(path).sort.map { |name| [name, of_file(File.join(path, name))] }.hash
        @folders = {} if @folders.size >= FOLDERS && !known # other threads may search the table
        @folders[path.dup] = [own.dup, stamp, Clock.now]
        stamp
      end

      def of_file(path)
        fields(File.stat(path))
      rescue SystemCallError => error # a dangling link
        error.errno
      end
    end
  end
  private_constant :FileStamp
end
