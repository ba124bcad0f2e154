# frozen_string_literal: true

module Heddle
  module DB
    # Copies of a database that is in use. Only where the database is a file of this machine ({SQLite}); others raise
    # {Unsupported}.
    module Backup
      # Copies the whole database into a file, whose content is replaced. Other tasks run meanwhile, and others may use
      # the database. With a write-ahead log (the default) the copy has the state at its start. Without one,
      # the copy starts again whenever another connection writes. An interrupted copy leaves the file as it was.
      #
      # @param path [String]
      # @param pages [Integer] how many pages are copied without a turn for others
      # @yieldparam done [Integer] pages that are copied
      # @yieldparam all [Integer] pages of the database
      # @return [self]
      # @raise [Unsupported] on other databases; [TransactionError] in a transaction that writes; [ArgumentError,
      #   ServerError, DeadlineExceeded]
      # @example
      #   db.backup("/var/backups/shop.db") { |done, all| puts "#{done} of #{all}" }
      def backup(path, pages: 64)
        need_driver(:backup)
        unless pages.is_a?(Integer) && pages.between?(1, 1 << 30)
          raise ArgumentError, "pages: must be a number of pages above 0, not #{pages.inspect}"
        end

        exchange do
          copied = @driver.backup(File.expand_path(path), pages) do |done, all|
            yield done, all if block_given?
            sleep(0) # others have a turn
          end
          checked(copied, "backup")
        end
        self
      end
    end
  end
end
