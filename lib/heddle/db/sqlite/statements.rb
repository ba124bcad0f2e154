# frozen_string_literal: true

require "strscan"

module Heddle
  module DB
    module SQLite
      # Finds out the kind of a statement, and the places of its parameters, without SQLite.
      #
      # @api private
      module Statements
        # The first words of statements that begin or end a transaction, or change the schema or the connection. All
        # other statements are :plain.
        KINDS = {"begin" => :commit, "commit" => :commit, "end" => :commit, "rollback" => :commit,
                 "pragma" => :session,
                 "attach" => :other, "detach" => :other, "create" => :other, "drop" => :other, "alter" => :other,
                 "vacuum" => :other, "reindex" => :other, "analyze" => :other, "savepoint" => :other,
                 "release" => :other}.freeze
        # SQLite takes a byte order mark for a space, wherever it stands.
        MARK = /\xEF\xBB\xBF/n
        COMMENT = %r{--[^\n]*(?:\n|\z)|/\*.*?(?:\*/|\z)}mn
        # In front of a statement, and between its words. Atomic groups: backtracking would extend a comment to the end
        # of the text.
        BLANK = /(?>(?:[\s;]|#{MARK}|#{COMMENT})*)/n
        GAP = /(?>(?:\s|#{MARK}|#{COMMENT})*)/n
        NOTHING = /\A#{BLANK}\z/n
        EXPLAIN = /explain\b#{GAP}(?:query\b#{GAP}plan\b#{GAP})?/in
        WORD = /\A#{BLANK}([a-z]+)/in
        EXPLAINED = /\A#{BLANK}#{EXPLAIN}([a-z]+)/in
        TO_SAVEPOINT = /\A#{BLANK}rollback#{GAP}(?:transaction\b#{GAP})?to\b/in
        # Not behind semicolons: with thousands of them, each look would go through all the others.
        TRIGGER = /\A#{GAP}(?:#{EXPLAIN})?create\b#{GAP}(?:temp(?:orary)?\b#{GAP})?trigger\b/in
        # A pragma that sets something has a value; these have an argument, and set nothing. What has a name in quotes
        # may be any pragma.
        ASKING = %w[table_info table_xinfo table_list index_list index_info index_xinfo foreign_key_list
          foreign_key_check integrity_check quick_check wal_checkpoint optimize].join("|")
        ASKS = /\A#{BLANK}(?:#{EXPLAIN})?pragma\b#{GAP}(?:\w+#{GAP}\.#{GAP})?
          (?:\w+#{BLANK}\z|(?:#{ASKING})#{GAP}[=(])/inx
        # Also create table temp.…, and the like.
        TEMPORARY = /\A#{BLANK}create\b#{GAP}(?:temp|(?:(?:unique|virtual)\b#{GAP})?(?:table|view|index|trigger)\b#{GAP}
          (?:if\b#{GAP}not\b#{GAP}exists\b#{GAP})?["'`\[]?temp["'`\]]?#{GAP}\.)/inx
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
        private_constant :KINDS, :MARK, :COMMENT, :BLANK, :GAP, :NOTHING, :EXPLAIN, :WORD, :EXPLAINED, :TO_SAVEPOINT,
          :TRIGGER, :ASKING, :ASKS, :TEMPORARY, :LOOKS_BACK, :QUOTED, :NAME, :OTHER, :IDENTIFIER, :PARAMETER, :A_NAME,
          :ANOTHER, :REST

        class << self
          # @return [Symbol] the kind of the text's statements, see {Driver#kind}; of several the one that matters most
          # @raise [TypeError]
          def kind(sql)
            raise TypeError, "SQL must be a String, not #{sql.inspect}" unless sql.is_a?(String)

            bytes = sql.b
            kinds = parts(bytes).map { |part| kind_of(part) }
            %i[commit other session].find { |kind| kinds.include?(kind) } || :plain
          end

          # @return [Boolean] whether the next user of the connection would notice that the text has run
          def changes_session?(sql)
            parts(sql.b).any? do |part|
              case first_word(part)
              when "attach", "detach" then true
              when "create" then part.match?(TEMPORARY)
              when "pragma" then !part.match?(ASKS)
              end
            end
          end

          # @return [Boolean] whether it only reads, as far as its first word tells
          def reads?(sql)
            word = sql.b[WORD, 1]&.downcase
            %w[select values explain].include?(word) && parts(sql.b).size == 1
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

          # SQLite carries most pragmas out when it prepares them, so also those that are only to be explained.
          def first_word(part)
            word = part[WORD, 1]&.downcase
            return word unless word == "explain"

            part[EXPLAINED, 1]&.casecmp?("pragma") ? "pragma" : word
          end

          def kind_of(part)
            kind = KINDS.fetch(first_word(part), :plain)
            (kind == :commit && part.match?(TO_SAVEPOINT)) ? :other : kind
          end

          # The statements of a text. A trigger ends at the END behind a semicolon.
          def parts(bytes)
            return [bytes] unless (at = bytes.index(";")) && at < bytes.rstrip.size - 1

            found = []
            from = 0
            ending = before = nil
            start = StringScanner.new(bytes)
            each_token(bytes) do |token, at|
              ending = false if token == ";" && ending.nil? && begins_trigger?(start, from)
              if token == ";" && ending != false
                found << bytes.byteslice(from...at)
                from = at + 1
                ending = nil
              elsif ending == false && before == ";" && token.casecmp?("end")
                ending = true
              end
              before = token
            end
            found << bytes.byteslice(from..)
            found.reject { |part| part.match?(NOTHING) }.then { |list| list.empty? ? [bytes] : list }
          end

          # By a scanner, which looks at one place: a Regexp with \A goes through the whole rest of a String.
          def begins_trigger?(start, from)
            start.pos = from
            start.match?(TRIGGER)
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
