# frozen_string_literal: true

require "strscan"

module Heddle
  module DB
    module SQLite
      # Finds the places of a statement's parameters, and whether it reads, without a connection.
      #
      # @api private
      module Statements
        # SQLite treats a byte order mark as whitespace, anywhere in a text.
        MARK = /\xEF\xBB\xBF/n
        COMMENT = %r{--[^\n]*(?:\n|\z)|/\*.*?(?:\*/|\z)}mn
        # In front of a statement, and between its words. Atomic groups: backtracking would extend a comment to the end
        # of the text.
        BLANK = /(?>(?:[\s;]|#{MARK}|#{COMMENT})*)/n
        GAP = /(?>(?:\s|#{MARK}|#{COMMENT})*)/n
        WORD = /\A#{BLANK}([a-z]+)/in
        LOOKS_BACK = /\b(?:last_insert_rowid|(?:total_)?changes)\b["'`\]]?#{GAP}\(/in
        # Texts in quotes and comments, in which nothing is a parameter. Atomic: otherwise each byte of a long text
        # would be remembered, in 40 bytes, as a place to go back to.
        QUOTED = %r{'(?>[^']*)(?:''(?>[^']*))*'|"(?>[^"]*)(?:""(?>[^"]*))*"|`(?>[^`]*)(?:``(?>[^`]*))*`|
          \[(?>[^\]]*)\]|--(?>[^\n]*)|/\*.*?(?:\*/|\z)}mnx
        NAME = /:([A-Za-z_\x80-\xff][A-Za-z0-9_\x80-\xff]*)/n
        OTHER = /\?\d+|[@$:#][A-Za-z0-9_\x80-\xff]+/n
        IDENTIFIER = /[A-Za-z0-9_\x80-\xff][A-Za-z0-9_$\x80-\xff]*/n
        PARAMETER = Regexp.union(NAME, OTHER)
        A_NAME = /\A#{NAME}\z/n
        ANOTHER = /\A#{OTHER}\z/n
        REST = /[^'"`\[\-\/?:@$#;A-Za-z0-9_\x80-\xff]+/n
        private_constant :MARK, :COMMENT, :BLANK, :GAP, :WORD, :LOOKS_BACK, :QUOTED, :NAME, :OTHER, :IDENTIFIER,
          :PARAMETER, :A_NAME, :ANOTHER, :REST

        class << self
          # @return [Boolean] whether it only reads, as far as its first word tells
          def reads?(sql)
            bytes = sql.b
            %w[select values explain].include?(bytes[WORD, 1]&.downcase) && one?(bytes)
          end

          # @return [Boolean] whether a function in it tells of the statement that the connection has run before
          def looks_back?(sql) = sql.b.match?(LOOKS_BACK)

          # @return [Array<(String, Integer, Integer)>] see {Driver#placeholders}
          def placeholders(sql)
            raise TypeError, "SQL must be a String, not #{sql.inspect}" unless sql.is_a?(String)

            found = []
            each_token(sql.encode(Encoding::UTF_8).b) do |token, at|
              case token
              when "?" then found << [nil, at, 1]
              when A_NAME then found << [token.byteslice(1..).force_encoding(Encoding::UTF_8), at, token.size]
              when ANOTHER
                raise ArgumentError, "write the parameters as ? or as :name, not as #{token.force_encoding("utf-8")}"
              end
            end
            found
          end

          private

          # Whether no statement follows a semicolon.
          def one?(bytes)
            began = ended = false
            each_token(bytes) do |token, _|
              return false if ended && token != ";"

              ended = began if token == ";"
              began = true unless token == ";"
            end
            true
          end

          def each_token(bytes)
            scanner = StringScanner.new(bytes)
            until scanner.eos?
              at = scanner.pos
              next if scanner.skip(QUOTED) || scanner.skip(REST) || scanner.skip(MARK)

              yield scanner.scan(IDENTIFIER) || scanner.scan(PARAMETER) || scanner.getch, at
            end
          end
        end
      end
      private_constant :Statements
    end
  end
end
