# frozen_string_literal: true

require "strscan"

module Heddle
  module DB
    module ODBC
      # What must be known about the text of a statement before it is sent: its kind, and where its parameters are.
      # Databases differ in their comments and quotes.
      #
      # @api private
      class SQL
        PLAIN = %w[SELECT INSERT UPDATE DELETE REPLACE MERGE WITH VALUES TABLE EXPLAIN SHOW DESCRIBE DESC].freeze
        # Statements without others in them.
        SIMPLE = [*PLAIN, "CALL", "SET", "DO", "DROP", "TRUNCATE", "LOAD", "USE"].freeze
        DDL = %w[CREATE ALTER DROP TRUNCATE RENAME GRANT REVOKE COMMENT ANALYZE OPTIMIZE REPAIR].freeze
        ENDS = %w[COMMIT ROLLBACK BEGIN START END ABORT].freeze
        # Ends with other first words.
        ENDING = /\A(?:PREPARE\s+TRANSACTION|XA|(?:UN)?LOCK\s+(?:TABLES?|INSTANCE)|
          SET\s+(?:\S+\s+)?[@.\w]*AUTOCOMMIT)\b/ix
        BACK_TO = /\AROLLBACK\s+(?:WORK\s+|TRANSACTION\s+)?TO\b/i
        # SQL Server names the savepoint without TO.
        BACK_TO_SAVED = /\AROLLBACK\s+TRAN(?:SACTION)?\s+\w/i
        TEMPORARY = /\A\w+\s+(?:(?:LOCAL|GLOBAL)\s+)?TEMP(?:ORARY)?\b/i
        # Definitions whose effect ends with the session; also create table temp.…, of SQLite.
        OF_SESSION = /\bTEMP(?:ORARY)?\b|\A\w+\s+SESSION\b/i
        # What makes a statement of rows change the session. For MySQL the names decide: a change costs a new
        # connection.
        CHANGES = {postgresql: /\A(?!INSERT|MERGE).*\bINTO\b/im, mysql: /@|GET_\w*LOCKS?/i, sqlite: nil}.freeze
        # Of other databases.
        CHANGES_ELSEWHERE = CHANGES.fetch(:postgresql)
        COMMENTS = %r{\A(?:[\s(;]|--[^\n]*|/\*.*?\*/)+}m
        # Here -- needs a space behind it, and /*! begins no comment.
        COMMENTS_OF_MYSQL = %r{\A(?:[\s(;]|--(?=[\x00-\x20\x7f]|\z)[^\n]*|\#[^\n]*|/\*(?!!).*?\*/)+}m
        NESTED_COMMENT = %r{(?<comment>/\*(?:[^*/]|\*(?!/)|/(?!\*)|\g<comment>)*\*/)}m
        # Atomic: otherwise each byte of a long text would be remembered, in 40 bytes, as a place to go back to.
        TEXT = /'(?>[^']*)(?:''(?>[^']*))*'|"(?>[^"]*)(?:""(?>[^"]*))*"/
        private_constant :PLAIN, :SIMPLE, :DDL, :ENDS, :ENDING, :TEXT, :BACK_TO, :BACK_TO_SAVED, :TEMPORARY, :COMMENTS,
          :COMMENTS_OF_MYSQL, :NESTED_COMMENT, :OF_SESSION, :CHANGES,
          :CHANGES_ELSEWHERE

        # @param server [Server]
        def initialize(server)
          @family = server.family
          @ddl_commits = server.ddl_commits?
        end

        # @return [Symbol] see {DB::Driver#kind}
        def kind(sql)
          return kind_of_one(sql) unless sql.include?(";")

          kinds = statements(sql).map { |one| kind_of_one(one) }
          %i[commit other session].find { |kind| kinds.include?(kind) } || :plain
        rescue ArgumentError
          :other # not a text, or one whose end depends on the server
        end

        # @return [Boolean] whether the statement may leave something in the session; for one that is neither :plain
        #   nor :session
        def changes_session?(sql)
          statements(sql).any? do |one|
            text = without_comments(one)
            !(DDL.include?(first_word(text)) && CHANGES.key?(@family)) || OF_SESSION.match?(text) ||
              changing?(text) || calls?(text)
          end
        rescue ArgumentError
          true
        end

        # Of PostgreSQL, whose session is reset at the price of a short query: there each function may change it, of
        # whatever name and wherever in the text.
        #
        # @return [Boolean] whether the statement may call functions
        def calls?(sql) = @family == :postgresql && sql.include?("(")

        # @return [Boolean] whether the text may be one statement with others in it: a routine, a block
        def compound?(sql)
          String === sql && sql.include?(";") && !SIMPLE.include?(first_word(without_comments(sql)))
        rescue ArgumentError
          true # a text whose encoding is broken
        end

        # @return [Array<(String, Integer, Integer)>] see {DB::Driver#placeholders}
        def placeholders(sql)
          found = []
          scan(sql) do |what, name, offset|
            found << [nil, offset, 1] if what == :question
            found << [name, offset, name.bytesize + 1] if what == :name
          end
          found
        end

        private

        def kind_of_one(sql)
          text = without_comments(sql)
          return :commit if mysql? && text.start_with?("/*!") # what it does depends on the server

          word = first_word(text)
          return :other if word == "EXPLAIN" && @family == :sqlite # which carries a pragma out when it prepares it
          return changing?(text) ? :session : :plain if PLAIN.include?(word)
          return :commit if ENDING.match?(text) || (ENDS.include?(word) && !back_to?(text))

          (@ddl_commits && DDL.include?(word) && !TEMPORARY.match?(text)) ? :commit : :other
        end

        def mysql? = @family == :mysql

        def changing?(text) = CHANGES.fetch(@family, CHANGES_ELSEWHERE)&.match?(text)

        def back_to?(text) = ((@family == :sqlserver) ? BACK_TO_SAVED : BACK_TO).match?(text)

        def first_word(text) = text[/\A\w+/].to_s.upcase

        def without_comments(sql) = sql.sub(mysql? ? COMMENTS_OF_MYSQL : COMMENTS, "")

        def statements(sql)
          return [sql] unless sql.include?(";")

          cuts = []
          scan(sql) { |what, _, offset| cuts << offset if what == :semicolon }
          starts = [0, *cuts.map { |cut| cut + 1 }]
          parts = starts.zip([*cuts, sql.bytesize]).map { |from, to| sql.byteslice(from...to) }
          parts.reject { |part| without_comments(part).empty? }
        end

        # Yields what stands outside of texts, quoted names and comments.
        def scan(sql)
          scanner = StringScanner.new(sql)
          until scanner.eos?
            next if skip_quoted(scanner) || skip_comment(scanner)

            offset = scanner.pos
            if scanner.skip(/\?/) then yield :question, nil, offset
            elsif scanner.skip(/;/) then yield :semicolon, nil, offset
            elsif scanner.scan(/:([[:alpha:]_][[:alnum:]_]*)/) then yield :name, scanner[1], offset
            else
              # A colon behind a word, a colon or a bracket begins no name.
              scanner.skip(/[[:alnum:]_)\]]+:*|::+|:=/) || scanner.getch
            end
          end
        end

        def skip_quoted(scanner)
          if (text = scanner.scan(TEXT))
            unknown("a backslash in a text") if mysql? && text.include?("\\")
            return true
          end
          unknown("a text without its end") if scanner.match?(/['"]/)
          case @family
          when :postgresql then scanner.skip(/\$((?:[[:alpha:]_]\w*)?)\$.*?\$\1\$/m)
          when :mysql then scanner.skip(/`(?:[^`]|``)*`/)
          when :sqlite then scanner.skip(/`(?:[^`]|``)*`|\[[^\]]*\]/)
          when :sqlserver then scanner.skip(/\[(?:[^\]]|\]\])*\]/)
          end
        end

        def skip_comment(scanner)
          case @family
          when :mysql
            unknown("a comment such as /*! … */") if scanner.match?(%r{/\*!})
            scanner.skip(%r{--(?=[\x00-\x20\x7f]|\z)[^\n]*|\#[^\n]*|/\*.*?\*/}m)
          when :postgresql, :sqlserver then scanner.skip(/--[^\n]*/) || scanner.skip(NESTED_COMMENT)
          else scanner.skip(%r{--[^\n]*|/\*.*?\*/}m)
          end
        end

        def unknown(why)
          raise ArgumentError, "the places of this statement's parameters depend on the server, because it has " \
            "#{why}: write them as ?, without a list, and bind the text"
        end
      end
    end
  end
end
